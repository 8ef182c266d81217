// Device memory that steps use: it leaves once all their work has finished.
#pragma once

#include <cstddef>
#include <cstdint>

#include "offload/device.h"
#include "offload/fence.h"

namespace fasa {

class StepBuffer {
 public:
  // `purpose` names the memory in budget errors. `device` and `fences` outlive the buffer.
  StepBuffer(Device& device, Fences& fences, const char* purpose)
      : device_(device), fences_(fences), purpose_(purpose) {}

  // Frees the old memory first, so that both never have to fit at once; contents are lost. 0: none.
  // Throws BudgetError; then there is none.
  void resize(size_t bytes) {
    if (memory_) fences_.wait(fences_.latest());
    memory_ = Buffer();
    if (bytes > 0) memory_ = device_.allocate(MemorySpace::kDevice, bytes, purpose_);
  }
  explicit operator bool() const { return static_cast<bool>(memory_); }
  std::byte* data() const { return memory_.data(); }
  uint64_t bytes() const { return memory_.bytes(); }

 private:
  Device& device_;
  Fences& fences_;
  const char* purpose_;
  Buffer memory_;
};

}  // namespace fasa
