#include "kernels/cpu/model/elementwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/model/vector_clones.h"
#include "runtime/base/parallel.h"

namespace fasa {
namespace {

// Sixteen sums in a fixed order, so that compilers may vectorise without changing the bits.
template <typename Term>
float sum_of(int64_t size, Term term) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (int lane = 0; i < size; ++i, ++lane) lanes[lane] += term(i);
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

float mean_of(const Norm& norm, const float* x, int64_t size) {
  if (norm.kind != NormKind::kLayer) return 0;
  return sum_of(size, [&](int64_t i) { return x[i]; }) / static_cast<float>(size);
}

float scale_of(const Norm& norm, const float* x, float mean, int64_t size) {
  const float squares =
      norm.kind != NormKind::kLayer
          ? sum_of(size, [&](int64_t i) { return x[i] * x[i]; })
          : sum_of(size, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  return 1.0f / std::sqrt(squares / static_cast<float>(size) + norm.eps);
}

// Calls `write` with each normalised value.
template <typename Write>
void normalise_each(const float* x, const Norm& norm, int64_t size, Write write) {
  if (norm.none()) return write([&](int64_t i) { return x[i]; });
  const float mean = mean_of(norm, x, size);
  const float scale = scale_of(norm, x, mean, size);
  if (norm.kind == NormKind::kBareRms) {
    write([&](int64_t i) { return x[i] * scale; });
  } else if (norm.kind == NormKind::kRms) {
    write([&](int64_t i) { return x[i] * scale * norm.weight[i]; });
  } else if (norm.bias == nullptr) {
    write([&](int64_t i) { return (x[i] - mean) * scale * norm.weight[i]; });
  } else {
    write([&](int64_t i) { return (x[i] - mean) * scale * norm.weight[i] + norm.bias[i]; });
  }
}

// exp(x) within 2 ulp for x <= 0, 0 below -87, without branches, so that compilers vectorise it:
// Cody-Waite reduction and Cephes' expf polynomial. NaN stays NaN.
inline float exp_of_negative(float x) {
  constexpr float kLeast = -87;
  constexpr float kShifter = 12582912;  // 1.5 * 2^23: adding it rounds to an integer
  const float floored = x < kLeast ? kLeast : x;
  const float shifted = floored * 1.44269504f + kShifter;
  const float n = shifted - kShifter;
  const float r = floored - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const float power = std::bit_cast<float>((std::bit_cast<int32_t>(shifted) << 23) + (127 << 23));
  return x < kLeast ? 0.0f : p * power;
}

// x / (1 + exp(t)). Nothing on the way is subnormal, which takes processors long: with exp(t) for
// t > 0, compilers compute x / exp(87) for all x.
inline float divided_by_exp(float x, float t) {
  const float e = exp_of_negative(-std::abs(t));
  return x * (t > 0 ? e : 1.0f) / (1.0f + e);
}

struct Silu {
  float operator()(float x) const { return divided_by_exp(x, -x); }
};
struct Gelu {
  float operator()(float x) const { return 0.5f * x * (1.0f + std::erf(x * kInverseRoot2)); }
  static constexpr float kInverseRoot2 = 0.70710678f;
};
struct GeluTanh {
  float operator()(float x) const {
    constexpr float kRoot2OverPi = 0.79788456f;
    return 0.5f * x * (1.0f + std::tanh(kRoot2OverPi * x * (1.0f + 0.044715f * x * x)));
  }
};

template <typename Body>
void with_activation(Activation f, Body body) {
  switch (f) {
    case Activation::kSilu:
      return body(Silu{});
    case Activation::kGelu:
      return body(Gelu{});
    case Activation::kGeluTanh:
      return body(GeluTanh{});
  }
}

// Through a block of their own, which `out` cannot overlap, so that compilers vectorise it.
template <typename T, typename Value, typename Convert>
void store_each(int64_t size, T* out, Value value, Convert convert) {
  constexpr int64_t kBlock = 64;
  int64_t i = 0;
  for (; i + kBlock <= size; i += kBlock) {
    float block[kBlock];
    for (int64_t j = 0; j < kBlock; ++j) block[j] = value(i + j);
    for (int64_t j = 0; j < kBlock; ++j) out[i + j] = convert(block[j]);
  }
  for (; i < size; ++i) out[i] = convert(value(i));
}

template <typename Value>
void store_each(int64_t size, DType dtype, void* out, Value value) {
  if (dtype == DType::kF32) {
    store_each(size, static_cast<float*>(out), value, [](float x) { return x; });
  } else {
    store_each(size, static_cast<uint16_t*>(out), value, [](float x) { return bf16_from_f32(x); });
  }
}

}  // namespace

void normalise(const float* x, const Norm& norm, int64_t size, DType dtype, void* out) {
  normalise_each(x, norm, size, [&](auto value) { store_each(size, dtype, out, value); });
}

void normalise(float* x, const Norm& norm, int64_t size) {
  normalise_each(x, norm, size, [&](auto value) {
    for (int64_t i = 0; i < size; ++i) x[i] = value(i);
  });
}

void add_row(const float* addend, const float* bias, int64_t size, float* sum) {
  if (bias == nullptr) {
    for (int64_t i = 0; i < size; ++i) sum[i] += addend[i];
  } else {
    for (int64_t i = 0; i < size; ++i) sum[i] += addend[i] + bias[i];
  }
}

void join_row(const float* addend, const Joining& how, int64_t size, float* sum) {
  if (how.norm.none() && how.scale == 1) return add_row(addend, how.bias, size, sum);
  thread_local std::vector<float> joined;  // grows only
  joined.assign(addend, addend + size);
  if (how.bias != nullptr) add_bias(how.bias, size, joined.data());
  normalise(joined.data(), how.norm, size);
  for (int64_t i = 0; i < size; ++i) sum[i] += how.scale * joined[static_cast<size_t>(i)];
}

void add_bias(const float* bias, int64_t size, float* sum) {
  for (int64_t i = 0; i < size; ++i) sum[i] += bias[i];
}

FASA_VECTOR_CLONES
void activate(Activation f, const float* x, const float* bias, int64_t size, DType dtype,
              void* out) {
  with_activation(f, [&](auto function) {
    store_each(size, dtype, out,
               [&](int64_t i) { return function(bias == nullptr ? x[i] : x[i] + bias[i]); });
  });
}

FASA_VECTOR_CLONES
void activate_up(Activation f, const float* x, const float* up, int64_t size, DType dtype,
                 void* out) {
  with_activation(f, [&](auto function) {
    store_each(size, dtype, out, [&](int64_t i) { return function(x[i]) * up[i]; });
  });
}

FASA_VECTOR_CLONES
void activate_gate(Activation f, const float* gate_up, const float* bias, int64_t size, DType dtype,
                   void* out) {
  const float* up = gate_up + size;
  with_activation(f, [&](auto function) {
    if (bias == nullptr) {
      store_each(size, dtype, out, [&](int64_t i) { return function(gate_up[i]) * up[i]; });
    } else {
      store_each(size, dtype, out, [&](int64_t i) {
        return function(gate_up[i] + bias[i]) * (up[i] + bias[size + i]);
      });
    }
  });
}

FASA_VECTOR_CLONES
void activate_clamped(const ClampedGate& how, bool interleaved, const float* gate_up,
                      const float* bias, int64_t size, DType dtype, void* out) {
  const int64_t step = interleaved ? 2 : 1;
  const int64_t to_up = interleaved ? 1 : size;
  const auto biased = [&](int64_t i) {
    return bias == nullptr ? gate_up[i] : gate_up[i] + bias[i];
  };
  store_each(size, dtype, out, [&](int64_t i) {
    const float gate = std::min(biased(step * i), how.limit);
    const float up = std::clamp(biased(step * i + to_up), -how.limit, how.limit);
    return divided_by_exp(gate, -how.alpha * gate) * (up + 1.0f);
  });
}

void store_row(const float* x, int64_t size, DType dtype, void* out) {
  store_each(size, dtype, out, [&](int64_t i) { return x[i]; });
}

void scale_row(float factor, int64_t size, DType dtype, void* x) {
  if (dtype == DType::kF32) {
    auto* values = static_cast<float*>(x);
    for (int64_t i = 0; i < size; ++i) values[i] *= factor;
  } else {
    auto* values = static_cast<uint16_t*>(x);
    for (int64_t i = 0; i < size; ++i) values[i] = bf16_from_f32(f32_from_bf16(values[i]) * factor);
  }
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
