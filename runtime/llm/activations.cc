#include "runtime/llm/activations.h"

#include <algorithm>

namespace fasa {

Activations::Activations(Device& device, const ModelConfig& config, DType dtype, int64_t tokens,
                         int64_t rows)
    : tokens_(tokens), rows_(rows) {
  const int64_t hidden = config.hidden;
  const int64_t query = static_cast<int64_t>(config.query_heads) * config.head_dim;
  const int64_t qkv = query + 2 * static_cast<int64_t>(config.kv_heads) * config.head_dim;
  const int64_t widest_in = std::max({hidden, query, int64_t{config.intermediate}});
  const int64_t widest_out = std::max({hidden, qkv, 2 * int64_t{config.intermediate}});
  size_t bytes = 0;
  const auto take = [&](int64_t elements, int element_bytes) {
    const size_t offset = bytes;
    bytes += (static_cast<size_t>(elements * element_bytes) + 63) / 64 * 64;
    return offset;
  };
  constexpr int kFloat = sizeof(float);
  residual_ = take(tokens * hidden, kFloat);
  result_ = take(tokens * widest_out, kFloat);
  input_ = take(tokens * widest_in, dtype_bytes(dtype));
  qkv_ = take(tokens * qkv, dtype_bytes(dtype));
  attended_ = take(tokens * query, dtype_bytes(dtype));
  cosines_ = take(tokens * config.rotary_dims / 2, kFloat);
  sines_ = take(tokens * config.rotary_dims / 2, kFloat);
  logits_ = take(rows * config.vocab_size, kFloat);
  device_ = device.allocate(MemorySpace::kDevice, bytes, "activations");
  host_ = device.allocate(MemorySpace::kHost, static_cast<size_t>(tokens * hidden * kFloat),
                          "embeddings of a step");
  host_logits_ = device.allocate(MemorySpace::kHost,
                                 static_cast<size_t>(rows * config.vocab_size * kFloat), "logits");
}

}  // namespace fasa
