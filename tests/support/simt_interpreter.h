// Runs kernel bodies (kernels/cuda/simt.h) on the host, one block after the other or, now and then
// in random order, two by turns, each thread of a block on a stack of its own. Threads run until
// they meet a barrier, a warp's collective or (in random order) an atomic, so that what lacks a
// barrier shows in some order. Asynchronous copies are done when their thread waits for them, in
// falling order at once, in random order now so, now so. Shared memory lies in a heap block of
// exactly the bytes asked for, filled with a pattern before every block.
//
// What hardware leaves undefined is an error here, a SimtError that names kernel block and thread:
// threads of a block that wait for different things forever, lanes of a warp that meet in a
// collective with different masks or calls, masks with lanes that have ended or without the caller,
// shuffles from lanes outside of the mask, asynchronous copies that do not lie at whole words. So
// is what no launch may ask for: grids and shared memory beyond the devices' limits. Not shown:
// stores that another block may not see yet, for they are plain stores here.
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

namespace fasa {

class SimtError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class SimtInterpreter : public simt::Machine {
 public:
  enum class Order {
    kRising,   // blocks and threads as they are numbered
    kFalling,  // the other way round
    kRandom,   // any thread that can run, any block; atomics are shuffled too
  };
  explicit SimtInterpreter(Order order = Order::kRising, unsigned seed = 1)
      : order_(order), random_(seed) {}

  static constexpr int kMostBlocks = 65535;                  // of a grid's y and z
  static constexpr int64_t kMostShared = int64_t{99} << 10;  // a block's, from sm_80 on
  static constexpr int64_t kMostSharedBefore80 = int64_t{64} << 10;

  // Every thread of every block. Throws SimtError.
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
    int index = 0;  // among those of all blocks that run by turns
    Fiber fiber;
    simt::Place place;
    uint32_t mask = 0;
    void* operands = nullptr;
    Combine combine = nullptr;
    std::vector<Copy> copies;    // that were not waited for, oldest first
    std::vector<size_t> groups;  // of them, how many each
    size_t open_group = 0;
  };

  static void enter(void* thread);
  State& state_of(const Thread& thread) { return states_[static_cast<size_t>(thread.index)]; }
  // By turns.
  void run_blocks(std::span<const int> blocks, const simt::Grid& grid, int threads);
  bool run_ready();  // false: nobody could
  void settle_warps();
  void settle_collective(int first);
  void release_barrier();
  void stop_at_fault();
  std::string where(const Thread& thread) const;

  const Order order_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<Thread>> threads_;  // grows only
  std::vector<State> states_;                     // of the blocks' threads, side by side
  int count_ = 0;                                 // of them
  int block_threads_ = 0;
  Thread* running_ = nullptr;
  bool inside_ = false;  // a thread's fiber, not the scheduler
  const std::function<void()>* body_ = nullptr;
  std::vector<std::vector<std::byte>> shared_;  // of each block
  std::string fault_;
};

// A launcher whose kernels are done on return (kernels/cuda/simt.h).
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
