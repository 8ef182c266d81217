// Norms: a block per row, or a warp per head. Two passes, as on the processor: a layer norm
// subtracts the exact mean, not a running estimate. A row's bits depend only on the row.
#pragma once

#include "kernels/cuda/element_inl.h"
#include "kernels/cuda/simt.h"
#include "kernels/model_params.h"

namespace fasa::cuda {

// Returns the same in every thread; `warp_sums`: shared, one per warp, may be reused on return.
FASA_DEVICE float block_sum(float value, float* warp_sums) {
  value = simt::warp_sum(value);
  if (simt::lane() == 0) warp_sums[simt::warp()] = value;
  simt::sync_block();
  float sum = 0;
  for (int warp = 0; warp < simt::block_warps(); ++warp) sum += warp_sums[warp];
  simt::sync_block();
  return sum;
}

// y = (x - mean) * scale * weight + bias.
struct NormScale {
  float mean = 0;
  float scale = 1;

  // `sum(f)` adds up f over the elements of all threads that share the row.
  template <typename Sum>
  FASA_DEVICE static NormScale of(const NormParams& norm, int64_t size, const Sum& sum) {
    const auto count = static_cast<float>(size);
    NormScale made;
    if (norm.kind == NormKind::kLayer) made.mean = sum([](float x) { return x; }) / count;
    const float mean = made.mean;
    const float squares = sum([mean](float x) { return (x - mean) * (x - mean); });
    made.scale = 1.0f / simt::square_root(squares / count + norm.eps);
    return made;
  }
  FASA_DEVICE float operator()(const NormParams& norm, float x, int64_t i) const {
    if (norm.none()) return x;
    if (norm.weight == nullptr) return x * scale;
    const float y = (x - mean) * scale * norm.weight[i];
    return norm.bias == nullptr ? y : y + norm.bias[i];
  }
};

struct AddNormKernel {
  static constexpr const char* kName = "add_norm";
  static constexpr int kThreads = 256;

  AddNormParams params;

  // One block per row; a thread handles the same elements in every pass.
  FASA_DEVICE void operator()() const {
    const int64_t row = simt::block_x();
    const int64_t token = params.tokens == nullptr ? row : params.tokens[row];
    float* const residual = params.residual + token * params.size;
    const float* const addend =
        params.addend == nullptr ? nullptr : params.addend + token * params.size;
    if (params.order == AddOrder::kAddThenNorm) add(residual, addend);
    normalise(residual, row);
    if (params.order == AddOrder::kNormThenAdd) add(residual, addend);
  }

 private:
  FASA_DEVICE void add(float* residual, const float* addend) const {
    if (addend == nullptr) return;
    const auto value = [&](int64_t i) {
      return params.bias == nullptr ? addend[i] : addend[i] + params.bias[i];
    };
    const NormScale scale = scale_of(params.addend_norm, value);
    for (int64_t i = simt::thread_index(); i < params.size; i += kThreads) {
      const float sum = residual[i] + params.scale * scale(params.addend_norm, value(i), i);
      residual[i] = params.factor == nullptr ? sum : sum * *params.factor;
    }
  }
  FASA_DEVICE void normalise(const float* x, int64_t row) const {
    const NormScale scale = scale_of(params.norm, [&](int64_t i) { return x[i]; });
    for (int64_t i = simt::thread_index(); i < params.size; i += kThreads) {
      store(params.dtype, params.out, row * params.size + i, scale(params.norm, x[i], i));
    }
  }
  template <typename Value>
  FASA_DEVICE NormScale scale_of(const NormParams& norm, const Value& value) const {
    if (norm.none()) return {};
    auto* const warp_sums = reinterpret_cast<float*>(simt::shared_memory());
    return NormScale::of(norm, params.size, [&](const auto& term) {
      float sum = 0;
      for (int64_t i = simt::thread_index(); i < params.size; i += kThreads) sum += term(value(i));
      return block_sum(sum, warp_sums);
    });
  }
};

template <typename Launcher>
void start(const AddNormParams& params, const Launcher& launch) {
  constexpr int kWarps = AddNormKernel::kThreads / simt::kWarpThreads;
  launch(AddNormKernel{params},
         {.x = static_cast<int>(params.rows), .shared_bytes = kWarps * int64_t{sizeof(float)}});
}

}  // namespace fasa::cuda
