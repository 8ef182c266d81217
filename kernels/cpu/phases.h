// Tasks in phases on the threads of the caller's arena: a task begins when every task of the phases
// before its own has ended. All phases start the threads once. A parallel loop for each phase starts
// them each time, and on a virtual machine a sleeping thread takes tens of microseconds to come:
// more than a phase of a short context.
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

// On up to `threads` threads; returns when all is done. No task may wait for another one. The first
// exception that a task throws is thrown again when no task runs any more; those not begun by then
// are left out.
void run_phases(std::span<const Phase> phases, int threads);

}  // namespace fasa::cpu
