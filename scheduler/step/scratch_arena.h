// Cuts one allocation into aligned arrays. A first run without memory computes the size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/layout.h"

namespace fasa {

class ScratchArena {
 public:
  explicit ScratchArena(std::byte* base) : base_(base) {}

  template <typename T>
  T* take(int64_t count) {
    const int64_t at = offset_;
    offset_ += align_up(count * static_cast<int64_t>(sizeof(T)));
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  size_t bytes() const { return static_cast<size_t>(offset_); }

 private:
  std::byte* base_;
  int64_t offset_ = 0;
};

}  // namespace fasa
