#include "runtime/base/geometry.h"

#include <fmt/format.h>

#include <cmath>

#include "runtime/base/error.h"

namespace fasa {

Geometry::Pair Geometry::chunk_dims(int chunk) const {
  if (chunk >= rotary_dims / 2 || rotary_layout == RotaryLayout::kInterleaved) {
    return {2 * chunk, 2 * chunk + 1};
  }
  return {chunk, chunk + rotary_dims / 2};
}

Geometry Geometry::share(HeadRange heads) const {
  validate();
  if (heads.first < 0 || heads.count < 1 || heads.first > kv_heads - heads.count) {
    throw UsageError(fmt::format(
        "KV heads {} to {} (first = {}, count = {}): allowed: at least one head, within 0 to {}",
        heads.first, int64_t{heads.first} + heads.count - 1, heads.first, heads.count,
        kv_heads - 1));
  }
  Geometry part = *this;
  part.kv_heads = heads.count;
  part.query_heads = heads.count * gqa_group();
  if (!alibi_slopes.empty()) {
    const auto first = alibi_slopes.begin() + int64_t{heads.first} * gqa_group();
    part.alibi_slopes.assign(first, first + part.query_heads);
  }
  return part;
}

Geometry Geometry::only_layer(int layer) const {
  if (layer < 0 || layer >= layers) {
    throw UsageError(fmt::format("layer {}: allowed: 0 to {}", layer, layers - 1));
  }
  Geometry part = *this;
  part.layers = 1;
  if (!windows.empty()) part.windows = {window(layer)};
  return part;
}

std::vector<Geometry::Pair> Geometry::ranked_chunks() const {
  std::vector<Pair> chunks;
  for (int chunk = 0; chunk < rotary_dims / 2; ++chunk) chunks.push_back(chunk_dims(chunk));
  for (int dim = rotary_dims; dim < key_dim; ++dim) chunks.push_back({dim, dim});
  return chunks;
}

void Geometry::validate() const {
  const auto require = [](bool ok, std::string_view field, auto value, std::string_view allowed) {
    if (!ok) throw UsageError(fmt::format("geometry.{} = {}: allowed: {}", field, value, allowed));
  };
  require(layers > 0, "layers", layers, "at least 1");
  require(kv_heads > 0, "kv_heads", kv_heads, "at least 1");
  require(query_heads > 0 && kv_heads > 0 && query_heads % kv_heads == 0, "query_heads",
          query_heads, fmt::format("a multiple of kv_heads ({})", kv_heads));
  require(key_dim > 0 && key_dim % 2 == 0 && key_dim <= 1024, "key_dim", key_dim,
          "an even number from 2 to 1024");
  require(value_dim > 0 && value_dim <= 1024, "value_dim", value_dim, "1 to 1024");
  require(rotary_dims >= 0 && rotary_dims % 2 == 0 && rotary_dims <= key_dim, "rotary_dims",
          rotary_dims, fmt::format("an even number from 0 to key_dim ({})", key_dim));
  require(std::isfinite(scale) && scale > 0, "scale", scale, "a positive number");
  require(windows.empty() || windows.size() == static_cast<size_t>(layers), "windows",
          windows.size(), fmt::format("no values, or one per layer ({})", layers));
  for (const int w : windows) require(w >= 0, "windows", w, "0 (no window) or a number of tokens");
  require(alibi_slopes.empty() || alibi_slopes.size() == static_cast<size_t>(query_heads),
          "alibi_slopes", alibi_slopes.size(),
          fmt::format("no values, or one per query head ({})", query_heads));
  for (const float slope : alibi_slopes) {
    require(std::isfinite(slope) && slope >= 0, "alibi_slopes", slope, "numbers from 0");
  }
  require(std::isfinite(score_cap) && score_cap >= 0, "score_cap", score_cap,
          "0 (none) or a positive number");
}

}  // namespace fasa
