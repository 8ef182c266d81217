// Non-owning views of tensors [tokens, heads, head_dim]; the last dimension is dense.
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/base/dtype.h"

namespace fasa {

// Strides are in elements. T is `void` or `const void`.
template <typename T>
struct BasicTensorView {
  T* data = nullptr;
  DType dtype = DType::kF32;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t dim = 0;
  int64_t token_stride = 0;
  int64_t head_stride = 0;

  // A contiguous [tokens, heads, dim].
  static BasicTensorView dense(T* data, DType dtype, int64_t tokens, int64_t heads, int64_t dim) {
    return {data, dtype, tokens, heads, dim, heads * dim, dim};
  }
  constexpr int64_t offset(int64_t token, int64_t head) const {
    return token * token_stride + head * head_stride;
  }
  operator BasicTensorView<const void>() const requires(!std::is_const_v<T>) {
    return {data, dtype, tokens, heads, dim, token_stride, head_stride};
  }
};

using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

}  // namespace fasa
