/// \file
/// Views of tensors, and the small types of the calls.
#ifndef FASA_TENSORS_HPP
#define FASA_TENSORS_HPP

#include <fasa/errors.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace fasa {
inline namespace v0 {

enum class DType : int32_t { kF32 = FASA_F32, kF16 = FASA_F16, kBf16 = FASA_BF16 };
enum class StepMode : int32_t { kDecode = FASA_DECODE, kPrefill = FASA_PREFILL };
enum class MemorySpace : int32_t { kDevice = FASA_MEMORY_DEVICE, kHost = FASA_MEMORY_HOST };

using KvMemory = fasa_kv_memory;
using Metrics = fasa_metrics;
using MemoryUse = fasa_memory_use;
using Sequence = fasa_sequence;

/// A writable view of [tokens, heads, dim], or [batch, heads, tokens, dim], in memory that the
/// device can reach. Strides in elements; none: contiguous.
class TensorView {
 public:
  TensorView(void* data, DType dtype, std::span<const int64_t> shape,
             std::span<const int64_t> strides = {}) {
    if (shape.size() > 4 || (!strides.empty() && strides.size() != shape.size())) {
      throw UsageError(FASA_ERROR_USAGE,
                       "tensor: wrong number of dimensions or strides; allowed: up to 4 "
                       "dimensions, and one stride per dimension or none");
    }
    c_.data = data;
    c_.dtype = static_cast<fasa_dtype>(dtype);
    c_.ndim = static_cast<int32_t>(shape.size());
    for (std::size_t i = 0; i < shape.size(); ++i) c_.shape[i] = shape[i];
    for (std::size_t i = 0; i < strides.size(); ++i) c_.strides[i] = strides[i];
  }
  TensorView(float* data, int64_t tokens, int64_t heads, int64_t dim)
      : TensorView(data, DType::kF32, std::array<int64_t, 3>{tokens, heads, dim}) {}
  const fasa_tensor* c() const { return &c_; }

 private:
  fasa_tensor c_ = {};
};

/// A read-only view.
class ConstTensorView {
 public:
  ConstTensorView(const TensorView& view) : view_(view) {}  // NOLINT: a writable view may be read
  ConstTensorView(const void* data, DType dtype, std::span<const int64_t> shape,
                  std::span<const int64_t> strides = {})
      : view_(const_cast<void*>(data), dtype, shape, strides) {}  // the C struct has one pointer
  ConstTensorView(const float* data, int64_t tokens, int64_t heads, int64_t dim)
      : view_(const_cast<float*>(data), tokens, heads, dim) {}
  const fasa_tensor* c() const { return view_.c(); }

 private:
  TensorView view_;
};

}  // namespace v0
}  // namespace fasa

#endif  // FASA_TENSORS_HPP
