#include "kernels/cpu/model/row_calls.h"

#include <cmath>
#include <vector>

#include "kernels/cpu/model/elementwise.h"
#include "kernels/cpu/model/rope.h"

namespace fasa::cpu {
namespace {

std::byte* element(void* data, DType dtype, int64_t at) {
  return static_cast<std::byte*>(data) + at * dtype_bytes(dtype);
}

int64_t or_dense(int64_t stride, int64_t dense) { return stride == 0 ? dense : stride; }

KernelWork run(const AddNormParams& params) {
  for_each_row(params.rows, params.size, [&](int64_t row) {
    const int64_t token = params.tokens == nullptr ? row : params.tokens[row];
    float* const residual = params.residual + token * params.size;
    const auto join = [&] {
      if (params.addend == nullptr) return;
      join_row(params.addend + token * params.size, {params.bias, params.addend_norm, params.scale},
               params.size, residual);
      if (params.factor != nullptr) scale_row(*params.factor, params.size, DType::kF32, residual);
    };
    if (params.order == AddOrder::kAddThenNorm) join();
    normalise(residual, params.norm, params.size, params.dtype,
              element(params.out, params.dtype, row * params.size));
    if (params.order == AddOrder::kNormThenAdd) join();
  });
  return {};
}

KernelWork run(const AnglesParams& params) {
  const auto half = static_cast<size_t>(params.half);
  for_each_row(params.tokens, params.half * 16, [&](int64_t row) {
    rope_angles({params.frequencies, half}, params.factor, params.positions[row],
                params.cosines + row * params.half, params.sines + row * params.half);
  });
  return {.device_bytes = static_cast<uint64_t>(params.tokens * params.half) * 2 * sizeof(float)};
}

// One token's heads, copied to thread-local memory.
class TokenHeads {
 public:
  TokenHeads(const HeadsParams& params, int64_t token) : params_(params), token_(token) {}

  void run() const {
    float* const heads = load();
    normalise_heads(params_.query_norm, params_.query_heads, heads);
    float* const keys = heads + int64_t{params_.query_heads} * params_.dim;
    normalise_heads(params_.key_norm, params_.key_heads, keys);
    normalise_heads(params_.value_norm, params_.heads - params_.query_heads - params_.key_heads,
                    keys + int64_t{params_.key_heads} * params_.dim);
    rotate(heads);
    grow_queries(heads);
    store(heads);
  }

 private:
  int64_t width() const { return int64_t{params_.heads} * params_.dim; }

  float* load() const {
    thread_local std::vector<float> kept;  // grows only
    kept.resize(static_cast<size_t>(width()));
    const float* const x = params_.x + token_ * params_.x_stride;
    const int64_t stride = or_dense(params_.x_head_stride, params_.dim);
    for (int head = 0; head < params_.heads; ++head) {
      const int64_t source = params_.source(head);
      float* const to = kept.data() + int64_t{head} * params_.dim;
      std::copy_n(x + source * stride, params_.dim, to);
      if (params_.bias != nullptr) add_bias(params_.bias + source * params_.dim, params_.dim, to);
    }
    return kept.data();
  }

  void normalise_heads(Norm norm, int heads, float* x) const {
    if (norm.none() || heads == 0) return;
    if (params_.norm_together) return normalise(x, norm, int64_t{heads} * params_.dim);
    for (int head = 0; head < heads; ++head, x += params_.dim) {
      normalise(x, norm, params_.dim);
      if (norm.weight != nullptr) norm.weight += params_.norm_stride;
      if (norm.bias != nullptr) norm.bias += params_.norm_stride;
    }
  }

  void rotate(float* x) const {
    if (params_.rotary_dims == 0) return;
    const int64_t half = params_.rotary_dims / 2;
    const bool pairs = params_.rotary_layout == RotaryLayout::kInterleaved;
    const auto rotate_head = pairs ? rope_rotate_pairs : rope_rotate;
    for (int head = 0; head < params_.query_heads + params_.key_heads; ++head) {
      rotate_head(x + int64_t{head} * params_.dim, params_.rotary_dims,
                  params_.cosines + token_ * half, params_.sines + token_ * half);
    }
  }

  void grow_queries(float* x) const {
    const QueryGrowth growth = params_.growth;
    if (growth.beta == 0) return;
    const auto times = static_cast<float>(params_.positions[token_] / growth.positions);
    const float scale = 1 + growth.beta * std::log(1 + times);
    for (int64_t i = 0; i < int64_t{params_.query_heads} * params_.dim; ++i) x[i] *= scale;
  }

  void store(const float* x) const {
    const int64_t stride = or_dense(params_.out_head_stride, params_.dim);
    const int64_t first = token_ * or_dense(params_.out_stride, width());
    if (stride == params_.dim) return store_heads(x, width(), first);
    for (int64_t head = 0; head < params_.heads; ++head) {
      store_heads(x + head * params_.dim, params_.dim, first + head * stride);
    }
  }
  void store_heads(const float* x, int64_t size, int64_t at) const {
    store_row(x, size, params_.dtype, element(params_.out, params_.dtype, at));
  }

  const HeadsParams& params_;
  int64_t token_;
};

KernelWork run(const HeadsParams& params) {
  for_each_row(params.tokens, int64_t{params.heads} * params.dim,
               [&](int64_t token) { TokenHeads(params, token).run(); });
  return {};
}

KernelWork run(const ActivateParams& params) {
  const int64_t width = params.gated ? 2 * params.size : params.size;
  const auto apply = params.gated ? activate_gate : activate;
  for_each_row(params.tokens, params.size * 8, [&](int64_t row) {
    const float* const x = params.x + row * width;
    const float* bias = params.bias;
    if (params.bias_rows != nullptr) bias += params.bias_rows[row] * params.bias_step;
    std::byte* const out = element(params.out, params.dtype, row * params.size);
    if (params.clamped) {
      activate_clamped(*params.clamped, params.interleaved, x, bias, params.size, params.dtype,
                       out);
    } else if (params.up != nullptr) {
      activate_up(params.function, x, params.up + row * params.up_stride, params.size, params.dtype,
                  out);
    } else {
      apply(params.function, x, bias, params.size, params.dtype, out);
    }
    if (params.shares == nullptr) return;
    scale_row(1 / (1 + std::exp(-params.shares[row])), params.size, params.dtype, out);
  });
  return {};
}

KernelWork run(const AddBiasParams& params) {
  for_each_row(params.rows, params.size, [&](int64_t row) {
    add_bias(params.bias, params.size, params.x + row * params.size);
  });
  return {};
}

KernelWork run(const TakeSinksParams& params) {
  for_each_row(params.tokens * params.heads, params.dim * 4, [&](int64_t row) {
    const float share = 1 / (1 + std::exp(params.sinks[row % params.heads] - params.lse[row]));
    scale_row(share, params.dim, params.dtype, element(params.x, params.dtype, row * params.dim));
  });
  return {};
}

}  // namespace

KernelWork run_on_rows(const RowCalls::Call& call) {
  return std::visit([](const auto& params) { return run(params); }, call);
}

}  // namespace fasa::cpu
