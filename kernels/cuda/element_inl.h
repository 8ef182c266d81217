// Elements of tensors and rows, one at a time: runtime/base/dtype.h for kernel bodies, with the
// same bits.
#pragma once

#include "kernels/cuda/simt.h"
#include "runtime/base/dtype.h"
#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

namespace fasa::cuda {

#if defined(__CUDACC__)
FASA_DEVICE float float_of_f16(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
FASA_DEVICE uint16_t f16_of_float(float value) {
  const uint32_t bits = simt::bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {  // the same NaN as on the host
    return static_cast<uint16_t>((bits >> 16 & 0x8000u) | 0x7e00u);
  }
  return __half_as_ushort(__float2half_rn(value));
}
#else
FASA_DEVICE float float_of_f16(uint16_t bits) { return f32_from_f16(bits); }
FASA_DEVICE uint16_t f16_of_float(float value) { return f16_from_f32(value); }
#endif

FASA_DEVICE float load(DType dtype, const void* data, int64_t index) {
  if (dtype == DType::kF32) return static_cast<const float*>(data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return dtype == DType::kBF16 ? simt::float_of(uint32_t{bits} << 16) : float_of_f16(bits);
}

// The element in the low bits: 32 of f32, 16 of the others.
FASA_DEVICE uint32_t element_bits(DType dtype, float value) {
  if (dtype == DType::kF32) return simt::bits_of(value);
  return dtype == DType::kBF16 ? bf16_from_f32(value) : f16_of_float(value);
}

FASA_DEVICE void store(DType dtype, void* data, int64_t index, float value) {
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<uint16_t*>(data)[index] = static_cast<uint16_t>(element_bits(dtype, value));
  }
}

// Two floats rounded to f16, the first in the low half.
FASA_DEVICE uint32_t pack_f16(float low, float high) {
#if defined(__CUDACC__)
  const __half2 pair = __floats2half2_rn(low, high);
  return uint32_t{__half_as_ushort(__low2half(pair))} |
         uint32_t{__half_as_ushort(__high2half(pair))} << 16;
#else
  return uint32_t{f16_from_f32(low)} | uint32_t{f16_from_f32(high)} << 16;
#endif
}

}  // namespace fasa::cuda
