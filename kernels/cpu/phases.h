// Runs tasks in phases on the threads of the caller's arena: a task begins when every task of the
// earlier phases has ended. All phases start the threads only once. A parallel loop per phase would
// start them each time, and on a virtual machine a thread's start takes tens of microseconds, more
// than a phase of a short context.
#pragma once

#include <cstddef>
#include <span>

namespace fasa::cpu {

// `work(i)` for i < tasks. Refers to the callable, which must outlive it.
class Phase {
 public:
  template <typename Work>
  Phase(size_t tasks, const Work& work)
      : tasks_(tasks),
        work_(&work),
        call_([](const void* callable, size_t i) { (*static_cast<const Work*>(callable))(i); }) {}

  size_t tasks() const { return tasks_; }
  void run(size_t i) const { call_(work_, i); }

 private:
  size_t tasks_;
  const void* work_;
  void (*call_)(const void*, size_t);
};

// Uses up to `threads` threads; returns when all is done. Tasks must not wait for each other.
// Rethrows the first exception of a task after all running tasks have ended; tasks not begun by
// then are skipped.
void run_phases(std::span<const Phase> phases, int threads);

}  // namespace fasa::cpu
