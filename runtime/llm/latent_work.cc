#include "runtime/llm/latent_work.h"

#include <cstring>

#include "kernels/cpu/model/elementwise.h"
#include "kernels/cpu/model/rope.h"

namespace fasa {

void LatentWork::rotate(float* part, int64_t row) const {
  const int64_t half = config_.rotary_dims / 2;
  rope_rotate_pairs(part, config_.rotary_dims, activations_.cosines() + row * half,
                    activations_.sines() + row * half);
}

// What the queries are projected from.
const std::byte* LatentWork::query_input(const LatentWeights& weights, uint64_t* bytes) const {
  const int64_t rank = config_.mla.query_rank;
  if (rank == 0) return activations_.input();
  weights.query_down.apply(activations_.input(), runs_, activations_.result());
  for_each_row(tokens_, rank, [&](int64_t row) {
    normalise(activations_.result() + row * rank, weights.query_norm, rank, dtype_,
              activations_.head_input() + row * rank * dtype_bytes(dtype_));
  });
  *bytes += weights.query_down.work_bytes(tokens_);
  return activations_.head_input();
}

uint64_t LatentWork::queries(const LatentWeights& weights, std::byte* out, int64_t stride) const {
  const LatentShape& shape = config_.mla;
  const int64_t element = dtype_bytes(dtype_);
  const int64_t width = weights.query.outputs();
  uint64_t bytes = 0;
  weights.query.apply(query_input(weights, &bytes), runs_, activations_.result());
  bytes += weights.query.work_bytes(tokens_);
  for (int head = 0; head < config_.query_heads; ++head) {
    const Matrix& absorb = weights.absorb[static_cast<size_t>(head)];
    const auto query = [&](int64_t row) {
      return activations_.result() + row * width + head * (shape.plain + config_.rotary_dims);
    };
    for_each_row(tokens_, shape.plain, [&](int64_t row) {
      store_row(query(row), shape.plain, dtype_,
                activations_.head_input() + row * shape.plain * element);
    });
    absorb.apply(activations_.head_input(), runs_, activations_.head_result());
    bytes += absorb.work_bytes(tokens_);
    for_each_row(tokens_, config_.head_dim, [&](int64_t row) {
      float* rotated = query(row) + shape.plain;
      std::byte* to = out + (row * stride + int64_t{head} * config_.head_dim) * element;
      rotate(rotated, row);
      store_row(rotated, config_.rotary_dims, dtype_, to);
      store_row(activations_.head_result() + row * shape.latent, shape.latent, dtype_,
                to + config_.rotary_dims * element);
    });
  }
  return bytes;
}

uint64_t LatentWork::keys(const LatentWeights& weights, std::byte* out, int64_t stride) const {
  const int64_t latent = config_.mla.latent;
  const int64_t element = dtype_bytes(dtype_);
  weights.key_down.apply(activations_.input(), runs_, activations_.result());
  for_each_row(tokens_, config_.head_dim, [&](int64_t row) {
    float* key = activations_.result() + row * config_.head_dim;
    std::byte* to = out + row * stride * element;
    rotate(key + latent, row);
    store_row(key + latent, config_.rotary_dims, dtype_, to);
    normalise(key, weights.key_norm, latent, dtype_, to + config_.rotary_dims * element);
  });
  return weights.key_down.work_bytes(tokens_);
}

uint64_t LatentWork::values(const LatentWeights& weights) const {
  const LatentShape& shape = config_.mla;
  const int64_t element = dtype_bytes(dtype_);
  const int64_t heads = config_.query_heads;
  uint64_t bytes = 0;
  for (int64_t head = 0; head < heads; ++head) {
    const Matrix& expand = weights.expand[static_cast<size_t>(head)];
    for_each_row(tokens_, shape.latent, [&](int64_t row) {
      const int64_t latent = shape.latent * element;
      std::memcpy(activations_.head_input() + row * latent,
                  activations_.attended() + (row * heads + head) * latent,
                  static_cast<size_t>(latent));
    });
    expand.apply(activations_.head_input(), runs_, activations_.head_result());
    bytes += expand.work_bytes(tokens_);
    for_each_row(tokens_, shape.value, [&](int64_t row) {
      store_row(activations_.head_result() + row * shape.value, shape.value, dtype_,
                activations_.input() + (row * heads + head) * shape.value * element);
    });
  }
  return bytes;
}

}  // namespace fasa
