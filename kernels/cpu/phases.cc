#include "kernels/cpu/phases.h"

#include <atomic>
#include <exception>
#include <thread>

#include "runtime/base/parallel.h"

namespace fasa::cpu {
namespace {

// Threads claim tasks in order across phases. A thread with a task waits until all earlier phases
// are done. Their tasks are already claimed, so some thread works on the first of them: there is no
// deadlock for any number of threads.
class PhaseRun {
 public:
  explicit PhaseRun(std::span<const Phase> phases) : phases_(phases) {}

  void work() {
    for (;;) {
      size_t task = next_.fetch_add(1, std::memory_order_relaxed);
      size_t before = 0;  // tasks in earlier phases
      size_t phase = 0;
      while (phase < phases_.size() && task >= phases_[phase].tasks()) {
        task -= phases_[phase].tasks();
        before += phases_[phase++].tasks();
      }
      if (phase == phases_.size()) return;
      wait_until_done(before);
      run(phases_[phase], task);
      done_.fetch_add(1, std::memory_order_release);
    }
  }

  void rethrow() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  void wait_until_done(size_t tasks) const {
    constexpr int kSpins = 4096;  // then yields the core to working threads
    for (int spin = 0; done_.load(std::memory_order_acquire) < tasks; ++spin) {
      if (spin < kSpins) {
        pause();
      } else {
        std::this_thread::yield();
      }
    }
  }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  void run(const Phase& phase, size_t task) noexcept {
    if (failed_.load(std::memory_order_acquire)) return;
    try {
      phase.run(task);
    } catch (...) {
      if (!failing_.exchange(true)) {
        failure_ = std::current_exception();
        failed_.store(true, std::memory_order_release);
      }
    }
  }

  const std::span<const Phase> phases_;
  std::atomic<size_t> next_{0};
  std::atomic<size_t> done_{0};
  std::atomic<bool> failing_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;  // read after all threads have returned
};

}  // namespace

void run_phases(std::span<const Phase> phases, int threads) {
  PhaseRun run(phases);
  if (threads <= 1) {
    run.work();
  } else {
    parallel_for(0, threads, [&](int) { run.work(); });
  }
  run.rethrow();
}

}  // namespace fasa::cpu
