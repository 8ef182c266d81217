#include "kernels/cpu/model/loop_panel.h"

#include <cstring>

namespace fasa {
namespace {

inline float widen(float value) { return value; }
inline float widen(uint16_t bits) { return f32_from_bf16(bits); }

// Sixteen partial sums, added in a fixed order, which a compiler can vectorise for any width.
template <typename T>
float dot(const T* a, const T* b, int64_t count) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane)
      lanes[lane] += widen(a[i + lane]) * widen(b[i + lane]);
  }
  for (int lane = 0; i < count; ++i, ++lane) lanes[lane] += widen(a[i]) * widen(b[i]);
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

template <typename T>
void multiply(const PanelShape& shape, int64_t rows, const T* x, const T* weights, float* y) {
  for (int64_t column = 0; column < shape.columns; ++column) {
    const T* weight = weights + column * shape.inputs;
    for (int64_t row = 0; row < rows; ++row) {
      y[row * shape.y_stride + column] = dot(x + row * shape.inputs, weight, shape.inputs);
    }
  }
}

}  // namespace

size_t LoopPanel::packed_bytes() const {
  return static_cast<size_t>(shape_.columns * shape_.inputs * dtype_bytes(shape_.dtype));
}

void LoopPanel::pack(const void* plain, void* packed) const {
  std::memcpy(packed, plain, packed_bytes());
}

void LoopPanel::pack_by_input(const void* plain, int64_t stride, void* packed) const {
  const auto element = static_cast<size_t>(dtype_bytes(shape_.dtype));
  const auto* from = static_cast<const std::byte*>(plain);
  auto* to = static_cast<std::byte*>(packed);
  for (int64_t column = 0; column < shape_.columns; ++column) {
    for (int64_t input = 0; input < shape_.inputs; ++input) {
      std::memcpy(to, from + static_cast<size_t>(input * stride + column) * element, element);
      to += element;
    }
  }
}

void LoopPanel::run(int64_t rows, const void* x, const void* packed, float* y) const {
  if (shape_.dtype == DType::kF32) {
    multiply(shape_, rows, static_cast<const float*>(x), static_cast<const float*>(packed), y);
  } else {
    multiply(shape_, rows, static_cast<const uint16_t*>(x), static_cast<const uint16_t*>(packed),
             y);
  }
}

}  // namespace fasa
