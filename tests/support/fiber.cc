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

namespace fasa {

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
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.get();
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
}

void Fiber::enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32 | low);
  self->arrived();
  self->entry_(self->argument_);
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
  swapcontext(&outside_, &inside_);
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
  swapcontext(&inside_, &outside_);
  arrived();
}

void Fiber::leave_for_good() {
#if defined(FASA_ASAN)
  __sanitizer_start_switch_fiber(nullptr, outside_stack_, outside_bytes_);
#endif
#if defined(FASA_TSAN)
  __tsan_switch_to_fiber(outside_thread_, 0);
#endif
  setcontext(&outside_);
}

}  // namespace fasa
