#include "kernels/cpu/rows/row_convert.h"

#include <cstddef>
#include <cstring>

namespace fasa::cpu {

void convert_elements(DType in_dtype, const void* in, int64_t index, int count, DType out_dtype,
                      void* out) {
  const std::byte* source = static_cast<const std::byte*>(in) + index * dtype_bytes(in_dtype);
  if (in_dtype == out_dtype) {
    std::memcpy(out, source, static_cast<size_t>(count) * dtype_bytes(in_dtype));
  } else if (in_dtype == DType::kF32 && out_dtype == DType::kBF16) {
    const float* values = reinterpret_cast<const float*>(source);
    uint16_t* bits = static_cast<uint16_t*>(out);
    for (int i = 0; i < count; ++i) bits[i] = bf16_from_f32(values[i]);
  } else if (in_dtype == DType::kBF16 && out_dtype == DType::kF32) {
    const uint16_t* bits = reinterpret_cast<const uint16_t*>(source);
    float* values = static_cast<float*>(out);
    for (int i = 0; i < count; ++i) values[i] = f32_from_bf16(bits[i]);
  } else {
    for (int i = 0; i < count; ++i) {
      store_element(out_dtype, out, i, load_element(in_dtype, source, i));
    }
  }
}

void store_quotients(const float* values, float divisor, int count, DType out_dtype, void* out,
                     int64_t index) {
  if (out_dtype == DType::kF32) {
    float* results = static_cast<float*>(out) + index;
    for (int i = 0; i < count; ++i) results[i] = values[i] / divisor;
  } else if (out_dtype == DType::kBF16) {
    uint16_t* results = static_cast<uint16_t*>(out) + index;
    for (int i = 0; i < count; ++i) results[i] = bf16_from_f32(values[i] / divisor);
  } else {
    for (int i = 0; i < count; ++i) store_element(out_dtype, out, index + i, values[i] / divisor);
  }
}

}  // namespace fasa::cpu
