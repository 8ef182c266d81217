#include "runtime/llm/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/parallel.h"

namespace fasa {
namespace {

// Sixteen sums in a fixed order, so that compilers may vectorise without changing the bits.
float sum_of_squares(const float* x, int64_t size) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  }
  for (int lane = 0; i < size; ++i, ++lane) lanes[lane] += x[i] * x[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

float rms_scale(const float* x, float eps, int64_t size) {
  return 1.0f / std::sqrt(sum_of_squares(x, size) / static_cast<float>(size) + eps);
}

float silu(float x) { return x / (1.0f + std::exp(-x)); }

template <typename Value>
void store_each(int64_t size, DType dtype, void* out, Value value) {
  if (dtype == DType::kF32) {
    auto* target = static_cast<float*>(out);
    for (int64_t i = 0; i < size; ++i) target[i] = value(i);
  } else {
    auto* target = static_cast<uint16_t*>(out);
    for (int64_t i = 0; i < size; ++i) target[i] = bf16_from_f32(value(i));
  }
}

}  // namespace

void rms_norm(const float* x, const float* weight, float eps, int64_t size, DType dtype,
              void* out) {
  const float scale = rms_scale(x, eps, size);
  store_each(size, dtype, out, [&](int64_t i) { return x[i] * scale * weight[i]; });
}

void rms_norm(float* x, const float* weight, float eps, int64_t size) {
  const float scale = rms_scale(x, eps, size);
  for (int64_t i = 0; i < size; ++i) x[i] = x[i] * scale * weight[i];
}

void add_row(const float* addend, const float* bias, int64_t size, float* sum) {
  if (bias == nullptr) {
    for (int64_t i = 0; i < size; ++i) sum[i] += addend[i];
  } else {
    for (int64_t i = 0; i < size; ++i) sum[i] += addend[i] + bias[i];
  }
}

void silu_gate(const float* gate_up, const float* bias, int64_t size, DType dtype, void* out) {
  const float* up = gate_up + size;
  if (bias == nullptr) {
    store_each(size, dtype, out, [&](int64_t i) { return silu(gate_up[i]) * up[i]; });
  } else {
    store_each(size, dtype, out,
               [&](int64_t i) { return silu(gate_up[i] + bias[i]) * (up[i] + bias[size + i]); });
  }
}

void store_row(const float* x, int64_t size, DType dtype, void* out) {
  store_each(size, dtype, out, [&](int64_t i) { return x[i]; });
}

void for_each_row(int64_t rows, int64_t row_work, const std::function<void(int64_t)>& body) {
  constexpr int64_t kTaskWork = 16 * 1024;  // elements
  const int64_t grain = std::max<int64_t>(1, kTaskWork / std::max<int64_t>(row_work, 1));
  const auto each = [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  };
  if (rows <= grain) {
    each(0, rows);
  } else {
    parallel_blocks(int64_t{0}, rows, grain, each);
  }
}

}  // namespace fasa
