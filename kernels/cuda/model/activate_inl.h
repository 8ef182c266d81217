// The MLP's activations, biases of logits, attention sinks and gates: one thread per element.
#pragma once

#include "kernels/cuda/element_inl.h"
#include "kernels/cuda/math_inl.h"
#include "kernels/cuda/model/row_grid_inl.h"
#include "kernels/linear_params.h"
#include "kernels/model_params.h"

namespace fasa::cuda {

FASA_DEVICE float activated(Activation function, float x) {
  constexpr float kInverseRoot2 = 0.70710678f;
  constexpr float kRoot2OverPi = 0.79788456f;
  switch (function) {
    case Activation::kSilu:
      return x / (1.0f + exponential(-x));
    case Activation::kGelu:
      return 0.5f * x * (1.0f + error_function(x * kInverseRoot2));
    case Activation::kGeluTanh:
      break;
  }
  return 0.5f * x * (1.0f + hyperbolic_tangent(kRoot2OverPi * x * (1.0f + 0.044715f * x * x)));
}

struct ActivateKernel {
  static constexpr const char* kName = "activate";
  static constexpr int kThreads = 256;

  ActivateParams params;

  FASA_DEVICE void operator()() const {
    const int64_t i = int64_t{simt::block_x()} * kThreads + simt::thread_index();
    if (i >= params.size) return;
    const int64_t token = simt::block_y();
    const int64_t row = token * params.size * (params.gated ? 2 : 1);
    const float* bias = params.bias;
    if (params.bias_rows != nullptr) bias += params.bias_rows[token] * params.bias_step;
    const auto with_bias = [&](int64_t at) {
      const float x = params.x[row + at];
      return bias == nullptr ? x : x + bias[at];
    };
    const float value = params.clamped ? clamped(with_bias, i) : plain(with_bias, i);
    const float share =
        params.shares == nullptr ? 1.0f : 1.0f / (1.0f + exponential(-params.shares[token]));
    store(params.dtype, params.out, token * params.size + i, value * share);
  }

 private:
  template <typename Biased>
  FASA_DEVICE float plain(const Biased& with_bias, int64_t i) const {
    const float value = activated(params.function, with_bias(i));
    if (params.up != nullptr) return value * params.up[simt::block_y() * params.up_stride + i];
    return params.gated ? value * with_bias(params.size + i) : value;
  }
  template <typename Biased>
  FASA_DEVICE float clamped(const Biased& with_bias, int64_t i) const {
    const ClampedGate& how = *params.clamped;
    float gate = with_bias(params.interleaved ? 2 * i : i);
    float up = with_bias(params.interleaved ? 2 * i + 1 : params.size + i);
    if (how.limit < gate) gate = how.limit;
    if (up < -how.limit) up = -how.limit;
    if (how.limit < up) up = how.limit;
    return gate / (1.0f + exponential(-how.alpha * gate)) * (up + 1.0f);
  }
};

struct AddBiasKernel {
  static constexpr const char* kName = "add_bias";
  static constexpr int kThreads = 256;

  AddBiasParams params;

  FASA_DEVICE void operator()() const {
    const int64_t i = int64_t{simt::block_x()} * kThreads + simt::thread_index();
    if (i < params.size) params.x[simt::block_y() * params.size + i] += params.bias[i];
  }
};

struct TakeSinksKernel {
  static constexpr const char* kName = "take_sinks";
  static constexpr int kThreads = 256;

  TakeSinksParams params;

  FASA_DEVICE void operator()() const {
    const int64_t width = params.heads * params.dim;
    const int64_t i = int64_t{simt::block_x()} * kThreads + simt::thread_index();
    if (i >= width) return;
    const int64_t token = simt::block_y();
    const int64_t head = i / params.dim;
    const float share =
        1 / (1 + exponential(params.sinks[head] - params.lse[token * params.heads + head]));
    const int64_t at = token * width + i;
    store(params.dtype, params.x, at, load(params.dtype, params.x, at) * share);
  }
};

struct GateKernel {
  static constexpr const char* kName = "gate";
  static constexpr int kThreads = 256;

  GateParams params;

  FASA_DEVICE void operator()() const {
    const int64_t i = int64_t{simt::block_x()} * kThreads + simt::thread_index();
    if (i >= params.size) return;
    const int64_t at = simt::block_y() * params.size + i;
    const float x = load(params.dtype, params.x, at);
    store(params.dtype, params.x, at, x / (1 + exponential(-params.gate[at])));
  }
};

template <typename Launcher>
void start(const ActivateParams& params, const Launcher& launch) {
  launch_by_rows(params.size, params.tokens, launch, [&](int64_t first) {
    ActivateParams part = params;
    part.x += first * params.size * (params.gated ? 2 : 1);
    part.out =
        static_cast<std::byte*>(params.out) + first * params.size * dtype_bytes(params.dtype);
    if (params.bias_rows != nullptr) part.bias_rows += first;
    if (params.up != nullptr) part.up += first * params.up_stride;
    if (params.shares != nullptr) part.shares += first;
    return ActivateKernel{part};
  });
}

template <typename Launcher>
void start(const AddBiasParams& params, const Launcher& launch) {
  launch_by_rows(params.size, params.rows, launch, [&](int64_t first) {
    AddBiasParams part = params;
    part.x += first * params.size;
    return AddBiasKernel{part};
  });
}

template <typename Launcher>
void start(const TakeSinksParams& params, const Launcher& launch) {
  const int64_t width = params.heads * params.dim;
  launch_by_rows(width, params.tokens, launch, [&](int64_t first) {
    TakeSinksParams part = params;
    part.lse += first * params.heads;
    part.x = static_cast<std::byte*>(params.x) + first * width * dtype_bytes(params.dtype);
    return TakeSinksKernel{part};
  });
}

template <typename Launcher>
void start(const GateParams& params, const Launcher& launch) {
  launch_by_rows(params.size, params.tokens, launch, [&](int64_t first) {
    GateParams part = params;
    part.gate += first * params.size;
    part.x = static_cast<std::byte*>(params.x) + first * params.size * dtype_bytes(params.dtype);
    return GateKernel{part};
  });
}

}  // namespace fasa::cuda
