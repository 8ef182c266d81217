// Runs kernel bodies (kernels/cuda/simt.h) on the host, one block after the other or, sometimes in
// random order, two by turns; each thread of a block has its own stack. Threads run until they
// reach a barrier, a warp's collective or (in random order) an atomic, so that a missing barrier
// shows in some order. An asynchronous copy is done when its thread waits for it; in falling order
// at once, in random order either way. Shared memory is a heap block of exactly the requested size,
// filled with a pattern before every block.
//
// What hardware leaves undefined is an error here, a SimtError that names kernel, block and thread:
// threads of a block that wait for different things forever, lanes of a warp that meet in a
// collective with different masks or calls, masks with lanes that have ended or without the caller,
// shuffles from lanes outside the mask, asynchronous copies that are not aligned to words. Illegal
// launches are errors too: grids and shared memory beyond the devices' limits. Not detected: stores
// that another block may not see yet, because stores here are visible at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/simt.h"
#include "tests/support/fiber.h"

// The same tests, executed from PTX (tests/ptx).
#ifdef FASA_EXECUTE_PTX
#include "tests/support/ptx/ptx_launcher.h"

namespace fasa {
using SimtError = ptx::Error;
using SimtInterpreter = PtxExecutor;
using SimtLauncher = PtxLauncher;
}  // namespace fasa
#else

namespace fasa {

class SimtError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class SimtInterpreter : public simt::Machine {
 public:
  enum class Order {
    kRising,   // blocks and threads in ascending order
    kFalling,  // in descending order
    kRandom,   // any thread of any block that can run; atomics are shuffled too
  };
  explicit SimtInterpreter(Order order = Order::kRising, unsigned seed = 1)
      : order_(order), random_(seed) {}

  static constexpr int kMostBlocks = 65535;                  // of a grid's y and z
  static constexpr int64_t kMostShared = int64_t{99} << 10;  // a block's, from sm_80 on
  static constexpr int64_t kMostSharedBefore80 = int64_t{64} << 10;

  // Runs every thread of every block. Throws SimtError.
  void run(const simt::Grid& grid, int threads, const std::function<void()>& body);

  const simt::Place& place() const override { return running_->place; }
  std::byte* shared_memory() override;
  void sync_block() override;
  void collective(uint32_t mask, void* operands, Combine combine) override;
  void yield() override;
  void copy_later(void* to, const void* from, size_t bytes) override;
  void commit_copies() override;
  void finish_copies(int left) override;
  void fault(const char* what, int lane, int other) override;

 private:
  enum class State : uint8_t { kReady, kAtBarrier, kInCollective, kEnded };
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  struct Thread {
    SimtInterpreter* owner = nullptr;
    int index = 0;  // among the threads of all blocks that run by turns
    Fiber fiber;
    simt::Place place;
    uint32_t mask = 0;
    void* operands = nullptr;
    Combine combine = nullptr;
    std::vector<Copy> copies;    // not waited for, oldest first
    std::vector<size_t> groups;  // the number of copies in each group
    size_t open_group = 0;
  };

  static void enter(void* thread);
  State& state_of(const Thread& thread) { return states_[static_cast<size_t>(thread.index)]; }
  // Runs the blocks by turns.
  void run_blocks(std::span<const int> blocks, const simt::Grid& grid, int threads);
  bool run_ready();  // false: no thread could run
  void settle_warps();
  void settle_collective(int first);
  void release_barrier();
  void stop_at_fault();
  std::string where(const Thread& thread) const;

  const Order order_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<Thread>> threads_;  // grows only
  std::vector<State> states_;                     // per thread of the blocks
  int count_ = 0;                                 // number of threads
  int block_threads_ = 0;
  Thread* running_ = nullptr;
  bool inside_ = false;  // true inside a thread's fiber, false in the scheduler
  const std::function<void()>* body_ = nullptr;
  std::vector<std::vector<std::byte>> shared_;  // per block
  std::string fault_;
};

// A launcher whose kernels have finished when it returns (kernels/cuda/simt.h).
class SimtLauncher {
 public:
  explicit SimtLauncher(SimtInterpreter& interpreter, int multiprocessors = 2,
                        int compute_capability = 90)
      : interpreter_(interpreter),
        multiprocessors_(multiprocessors),
        compute_capability_(compute_capability) {}

  template <typename Kernel>
  void operator()(const Kernel& kernel, const simt::Grid& grid) const {
    const bool before_80 = compute_capability_ < 80;
    if (before_80 && grid.shared_bytes > SimtInterpreter::kMostSharedBefore80) {
      throw SimtError(std::string(Kernel::kName) + ": more shared memory than the device has");
    }
    interpreter_.run(grid, Kernel::kThreads, [&kernel] { kernel(); });
  }
  int multiprocessors() const { return multiprocessors_; }
  int compute_capability() const { return compute_capability_; }  // x 10

 private:
  SimtInterpreter& interpreter_;
  int multiprocessors_;
  int compute_capability_;
};

}  // namespace fasa

#endif
