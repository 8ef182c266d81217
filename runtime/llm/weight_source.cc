#include "runtime/llm/weight_source.h"

#include <algorithm>
#include <cstring>

#include "runtime/llm/random_weights.h"

namespace fasa {
namespace {

uint16_t load_u16(const std::byte* data, int64_t index) {
  uint16_t bits = 0;
  std::memcpy(&bits, data + index * 2, sizeof(bits));
  return bits;
}

}  // namespace

int64_t WeightView::elements() const {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  return count;
}

void WeightView::read(int64_t first, int64_t count, float* out) const {
  if (data == nullptr) return read_random(*this, first, count, out);
  switch (dtype) {
    case DType::kF32:
      if (count > 0) std::memcpy(out, data + first * 4, static_cast<size_t>(count) * 4);
      break;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) out[i] = f32_from_f16(load_u16(data, first + i));
      break;
    case DType::kBF16:
      for (int64_t i = 0; i < count; ++i) out[i] = f32_from_bf16(load_u16(data, first + i));
      break;
  }
}

void WeightView::read_bf16(int64_t first, int64_t count, uint16_t* out) const {
  if (dtype == DType::kBF16 && data != nullptr) {
    if (count > 0) std::memcpy(out, data + first * 2, static_cast<size_t>(count) * 2);
    return;
  }
  constexpr int64_t kAtOnce = 256;
  float values[kAtOnce];
  for (int64_t done = 0; done < count; done += kAtOnce) {
    const int64_t part = std::min(kAtOnce, count - done);
    read(first + done, part, values);
    for (int64_t i = 0; i < part; ++i) out[done + i] = bf16_from_f32(values[i]);
  }
}

}  // namespace fasa
