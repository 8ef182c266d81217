// The interface between kernel bodies compiled for the host and their interpreter. Only simt.h
// includes this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fasa::simt {

// Indices of a thread.
struct Place {
  int thread = 0;   // in its block
  int threads = 0;  // of a block
  int block[3] = {};
  int grid[3] = {};
};

class Machine {
 public:
  // Runs once for all lanes of the mask. `lanes`: their operands, [32]; each lane finds its result
  // there afterwards.
  using Combine = void (*)(void* const* lanes, uint32_t mask);

  virtual ~Machine() = default;
  virtual const Place& place() const = 0;
  virtual std::byte* shared_memory() = 0;
  virtual void sync_block() = 0;
  virtual void collective(uint32_t mask, void* operands, Combine combine) = 0;
  virtual void yield() = 0;  // lets other threads run
  // Copies of the running thread: add one to the open group; end the group; wait for all but the
  // newest `left` groups.
  virtual void copy_later(void* to, const void* from, size_t bytes) = 0;
  virtual void commit_copies() = 0;
  virtual void finish_copies(int left) = 0;
  virtual void fault(const char* what, int lane, int other) = 0;
};

// The interpreter of this operating system thread.
inline thread_local Machine* current_machine = nullptr;
inline Machine& machine() { return *current_machine; }

template <typename Operands, typename Work>
void for_each_lane(void* const* lanes, uint32_t mask, const Work& work) {
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0) work(lane, *static_cast<Operands*>(lanes[lane]));
  }
}
inline void bad_shuffle(int lane, int source) {
  machine().fault("shuffle from a lane outside the mask", lane, source);
}

}  // namespace fasa::simt
