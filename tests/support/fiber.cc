#include "tests/support/fiber.h"

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define FASA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#define FASA_ASAN 1
#endif
#endif
#if defined(FASA_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__)
// Saves the callee-saved registers, and the stack pointer in *from; continues on the other stack.
// swapcontext() would make two system calls for the signal mask, which take three quarters of a
// test's time.
extern "C" void fasa_switch_stack(void** from, void* to);
asm(R"(
.text
.globl fasa_switch_stack
.type fasa_switch_stack, @function
fasa_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size fasa_switch_stack, .-fasa_switch_stack
)");
#endif

namespace fasa {
namespace {

thread_local Fiber* entered = nullptr;

}  // namespace

Fiber::Fiber() : stack_(std::make_unique_for_overwrite<std::byte[]>(kStackBytes)) {
#if defined(FASA_TSAN)
  inside_thread_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(FASA_TSAN)
  __tsan_destroy_fiber(inside_thread_);
#endif
}

void Fiber::prepare(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  inside_frames_ = nullptr;
#if defined(__x86_64__)
  // As at a function's entry: six registers, the address to continue at, and a null return address.
  auto top = reinterpret_cast<uintptr_t>(stack_.get() + kStackBytes) & ~uintptr_t{15};
  auto* words = reinterpret_cast<uintptr_t*>(top) - 8;
  for (int i = 0; i < 8; ++i) words[i] = 0;
  words[6] = reinterpret_cast<uintptr_t>(&Fiber::enter);
  inside_ = words;
#else
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.get();
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;
  makecontext(&inside_, &Fiber::enter, 0);
#endif
}

void Fiber::enter() {
  Fiber* const self = entered;
  self->arrived();
  self->entry_(self->argument_);
}

void Fiber::switch_in() {
#if defined(__x86_64__)
  fasa_switch_stack(&outside_, inside_);
#else
  swapcontext(&outside_, &inside_);
#endif
}

void Fiber::switch_out() {
#if defined(__x86_64__)
  fasa_switch_stack(&inside_, outside_);
#else
  swapcontext(&inside_, &outside_);
#endif
}

void Fiber::arrived() {
#if defined(FASA_ASAN)
  __sanitizer_finish_switch_fiber(inside_frames_, &outside_stack_, &outside_bytes_);
#endif
}

void Fiber::resume() {
#if defined(FASA_ASAN)
  __sanitizer_start_switch_fiber(&outside_frames_, stack_.get(), kStackBytes);
#endif
#if defined(FASA_TSAN)
  outside_thread_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(inside_thread_, 0);
#endif
  entered = this;
  switch_in();
#if defined(FASA_ASAN)
  __sanitizer_finish_switch_fiber(outside_frames_, nullptr, nullptr);
#endif
}

void Fiber::leave() {
#if defined(FASA_ASAN)
  __sanitizer_start_switch_fiber(&inside_frames_, outside_stack_, outside_bytes_);
#endif
#if defined(FASA_TSAN)
  __tsan_switch_to_fiber(outside_thread_, 0);
#endif
  switch_out();
  arrived();
}

void Fiber::leave_for_good() {
#if defined(FASA_ASAN)
  __sanitizer_start_switch_fiber(nullptr, outside_stack_, outside_bytes_);
#endif
#if defined(FASA_TSAN)
  __tsan_switch_to_fiber(outside_thread_, 0);
#endif
  switch_out();
}

}  // namespace fasa
