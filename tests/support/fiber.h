// A call stack that is entered and left by switching: one thread of an interpreted block.
#pragma once

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <cstddef>
#include <memory>

namespace fasa {

// Neither copied nor moved, because contexts point into it. Sanitizers are notified of every
// switch.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next resume() enters `entry(argument)`, which must end in leave_for_good().
  void prepare(void (*entry)(void*), void* argument);
  void resume();  // called from outside; returns when the fiber leaves
  void leave();   // called from inside; returns at the next resume()
  void leave_for_good();

 private:
  static void enter();
  void arrived();
  void switch_in();
  void switch_out();

  static constexpr size_t kStackBytes = size_t{256}
                                        << 10;  // the address sanitizer's frames are large
  std::unique_ptr<std::byte[]> stack_;
#if defined(__x86_64__)
  void* inside_ = nullptr;  // stack pointers; the saved registers lie on the stacks
  void* outside_ = nullptr;
#else
  ucontext_t inside_ = {};
  ucontext_t outside_ = {};
#endif
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  // The sanitizers' handles for both stacks.
  void* inside_frames_ = nullptr;
  void* outside_frames_ = nullptr;
  const void* outside_stack_ = nullptr;
  size_t outside_bytes_ = 0;
  void* inside_thread_ = nullptr;
  void* outside_thread_ = nullptr;
};

}  // namespace fasa
