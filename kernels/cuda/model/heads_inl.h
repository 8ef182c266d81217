// A projection's heads: bias, norm, rotation, the model's dtype; one warp per head. Also the angles
// of the rotation.
#pragma once

#include "kernels/cuda/math_inl.h"
#include "kernels/cuda/model/norm_inl.h"

namespace fasa::cuda {

struct AnglesKernel {
  static constexpr const char* kName = "angles";
  static constexpr int kThreads = 128;

  AnglesParams params;

  FASA_DEVICE void operator()() const {
    const int64_t at = int64_t{simt::block_x()} * kThreads + simt::thread_index();
    if (at >= params.tokens * params.half) return;
    const auto position = static_cast<float>(params.positions[at / params.half]);
    const float angle = position * params.frequencies[at % params.half];
    params.cosines[at] = cosine(angle) * params.factor;
    params.sines[at] = sine(angle) * params.factor;
  }
};

struct HeadsKernel {
  static constexpr const char* kName = "heads";
  static constexpr int kThreads = 128;

  HeadsParams params;

  FASA_DEVICE void operator()() const {
    const int64_t item = int64_t{simt::block_x()} * simt::block_warps() + simt::warp();
    if (item >= params.tokens * params.heads) return;  // true for whole warps
    const int64_t token = item / params.heads;
    const int head = static_cast<int>(item % params.heads);
    const Head of = head_at(token, head);
    const NormScale scale = scale_of(of, token, head);
    const bool rotates = head < params.query_heads + params.key_heads;
    const int64_t out = token * or_dense(params.out_stride, int64_t{params.heads} * params.dim) +
                        head * or_dense(params.out_head_stride, params.dim);
    const float growth = head < params.query_heads ? growth_at(token) : 1;
    write(of, scale, rotates ? params.rotary_dims / 2 : 0, growth, token, out);
  }

 private:
  FASA_DEVICE static int64_t or_dense(int64_t stride, int64_t dense) {
    return stride == 0 ? dense : stride;
  }

  struct Head {
    const float* x;
    const float* bias;
    NormParams norm;

    FASA_DEVICE float operator[](int d) const { return bias == nullptr ? x[d] : x[d] + bias[d]; }
  };

  FASA_DEVICE Head head_at(int64_t token, int head) const {
    const int64_t source = params.source(head);
    const int64_t at = source * or_dense(params.x_head_stride, params.dim);
    return {params.x + token * params.x_stride + at,
            params.bias == nullptr ? nullptr : params.bias + source * params.dim, norm_of(head)};
  }
  FASA_DEVICE NormParams norm_of(int head) const {
    const bool is_query = head < params.query_heads;
    if (!is_query && head >= params.query_heads + params.key_heads) return params.value_norm;
    NormParams norm = is_query ? params.query_norm : params.key_norm;
    const int64_t offset = (is_query ? head : head - params.query_heads) * params.norm_stride;
    if (norm.weight != nullptr) norm.weight += offset;
    if (norm.bias != nullptr) norm.bias += offset;
    return norm;
  }
  // The norm's scale of one head, or of all heads of its kind. In the latter case each of their
  // warps reads all of them: the row is in L2, and a launch is saved.
  FASA_DEVICE NormScale scale_of(const Head& of, int64_t token, int head) const {
    if (of.norm.none()) return {};
    int first = head, count = 1;
    if (params.norm_together && head < params.query_heads + params.key_heads) {
      const bool is_query = head < params.query_heads;
      first = is_query ? 0 : params.query_heads;
      count = is_query ? params.query_heads : params.key_heads;
    }
    return NormScale::of(of.norm, int64_t{count} * params.dim, [&](const auto& term) {
      float sum = 0;
      for (int other = first; other < first + count; ++other) {
        const Head part = head_at(token, other);
        for (int d = simt::lane(); d < params.dim; d += simt::kWarpThreads) sum += term(part[d]);
      }
      return simt::warp_sum(sum);
    });
  }
  FASA_DEVICE static float value(const Head& head, const NormScale& scale, int d) {
    return scale(head.norm, head[d], d);
  }
  FASA_DEVICE float growth_at(int64_t token) const {
    if (params.growth.beta == 0) return 1;
    const auto times = static_cast<float>(params.positions[token] / params.growth.positions);
    return 1 + params.growth.beta * logarithm(1 + times);
  }
  FASA_DEVICE void write(const Head& head, const NormScale& scale, int half, float growth,
                         int64_t token, int64_t out) const {
    const bool pairs = params.rotary_layout == RotaryLayout::kInterleaved;
    for (int i = simt::lane(); i < half; i += simt::kWarpThreads) {
      const int d = pairs ? 2 * i : i;
      const int other = pairs ? d + 1 : d + half;
      const float first = value(head, scale, d);
      const float second = value(head, scale, other);
      const float c = params.cosines[token * half + i];
      const float s = params.sines[token * half + i];
      store(params.dtype, params.out, out + d, (first * c - second * s) * growth);
      store(params.dtype, params.out, out + other, (second * c + first * s) * growth);
    }
    for (int d = 2 * half + simt::lane(); d < params.dim; d += simt::kWarpThreads) {
      store(params.dtype, params.out, out + d, value(head, scale, d) * growth);
    }
  }
};

template <typename Launcher>
void start(const AnglesParams& params, const Launcher& launch) {
  const int64_t count = params.tokens * params.half;
  launch(AnglesKernel{params},
         {.x = static_cast<int>((count + AnglesKernel::kThreads - 1) / AnglesKernel::kThreads)});
}

template <typename Launcher>
void start(const HeadsParams& params, const Launcher& launch) {
  constexpr int kWarps = HeadsKernel::kThreads / simt::kWarpThreads;
  const int64_t items = params.tokens * params.heads;
  launch(HeadsKernel{params}, {.x = static_cast<int>((items + kWarps - 1) / kWarps)});
}

}  // namespace fasa::cuda
