#include "runtime/base/geometry.h"

#include <fmt/format.h>

#include <cmath>

#include "runtime/base/error.h"

namespace fasa {

int kv_layer_of(std::span<const int> windows, int storing, int layer) {
  if (layer < storing) return layer;
  const auto has_window = [&](int at) {
    return !windows.empty() && windows[static_cast<size_t>(at)] > 0;
  };
  int at = storing - 1;
  while (at >= 0 && has_window(at) != has_window(layer)) --at;
  return at;
}

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
  if (has_window_heads()) {
    throw UsageError(
        "layers with a window have KV heads of another shape: a part of the heads is not "
        "supported; "
        "give all heads");
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
  const HeadShape own = heads(layer);
  part.kv_heads = own.kv_heads;
  part.key_dim = own.key_dim;
  part.value_dim = own.value_dim;
  part.rotary_dims = own.rotary_dims;
  part.window_heads = {};
  part.shared_layers = 0;
  part.linear = {};
  if (!windows.empty()) part.windows = {window(layer)};
  return part;
}

std::vector<Geometry::Pair> Geometry::ranked_chunks() const {
  std::vector<Pair> chunks;
  for (int chunk = 0; chunk < rotary_dims / 2; ++chunk) chunks.push_back(chunk_dims(chunk));
  for (int dim = rotary_dims; dim < key_dim; ++dim) chunks.push_back({dim, dim});
  return chunks;
}

namespace {

void require(bool ok, std::string_view field, const std::string& value, std::string_view allowed) {
  if (!ok) throw UsageError(fmt::format("geometry.{} = {}: allowed: {}", field, value, allowed));
}

// `of`: before the fields' names.
void require_heads(const HeadShape& heads, int query_heads, const std::string& of) {
  const auto check = [&](bool ok, const char* field, int value, std::string_view allowed) {
    require(ok, of + field, fmt::to_string(value), allowed);
  };
  const auto [kv_heads, key_dim, value_dim, rotary_dims] = heads;
  check(kv_heads > 0, "kv_heads", kv_heads, "at least 1");
  require(query_heads > 0 && query_heads % kv_heads == 0, "query_heads",
          fmt::to_string(query_heads), fmt::format("a multiple of {}kv_heads ({})", of, kv_heads));
  check(key_dim > 0 && key_dim % 2 == 0 && key_dim <= 1024, "key_dim", key_dim,
        "an even number from 2 to 1024");
  check(value_dim > 0 && value_dim <= 1024, "value_dim", value_dim, "1 to 1024");
  check(rotary_dims >= 0 && rotary_dims % 2 == 0 && rotary_dims <= key_dim, "rotary_dims",
        rotary_dims, fmt::format("an even number from 0 to key_dim ({})", key_dim));
}

}  // namespace

void Geometry::validate() const {
  const auto check = [](bool ok, std::string_view field, auto value, std::string_view allowed) {
    require(ok, field, fmt::to_string(value), allowed);
  };
  check(layers > 0, "layers", layers, "at least 1");
  require_heads({kv_heads, key_dim, value_dim, rotary_dims}, query_heads, "");
  if (has_window_heads()) require_heads(window_heads, query_heads, "window_heads.");
  check(std::isfinite(scale) && scale > 0, "scale", scale, "a positive number");
  check(windows.empty() || windows.size() == static_cast<size_t>(layers), "windows", windows.size(),
        fmt::format("no values, or one per layer ({})", layers));
  for (const int w : windows) check(w >= 0, "windows", w, "0 (no window) or a number of tokens");
  check(shared_layers >= 0 && shared_layers < layers, "shared_layers", shared_layers,
        fmt::format("0 to {}, all layers but the first", layers - 1));
  for (int layer = storing_layers(); layer < layers; ++layer) {
    check(kv_layer(layer) >= 0, "shared_layers", shared_layers,
          "a number that leaves a layer with a window if layers with a window share one, and a "
          "layer without if others do");
  }
  check(alibi_slopes.empty() || alibi_slopes.size() == static_cast<size_t>(query_heads),
        "alibi_slopes", alibi_slopes.size(),
        fmt::format("no values, or one per query head ({})", query_heads));
  for (const float slope : alibi_slopes) {
    check(std::isfinite(slope) && slope >= 0, "alibi_slopes", slope, "numbers from 0");
  }
  check(std::isfinite(score_cap) && score_cap >= 0, "score_cap", score_cap,
        "0 (none) or a positive number");
}

}  // namespace fasa
