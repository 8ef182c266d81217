#include "runtime/calibrate/fc_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/base/require.h"
#include "runtime/calibrate/geometry_fingerprint.h"
#include "runtime/config/config.h"
#include "runtime/io/input_file.h"
#include "runtime/io/output_file.h"

namespace fasa {

std::vector<int16_t> HeadRanking::dims() const {
  std::vector<int16_t> dims;
  std::vector<std::vector<int>> waiting;  // pairs that would begin at an odd position
  const auto take = [&](const std::vector<int>& chunk) {
    for (const int dim : chunk) dims.push_back(static_cast<int16_t>(dim));
  };
  for (const std::vector<int>& chunk : chunks) {
    if (chunk.size() > 1 && dims.size() % 2 != 0) {
      waiting.push_back(chunk);
      continue;
    }
    take(chunk);
    if (dims.size() % 2 != 0) continue;
    for (const std::vector<int>& pair : waiting) take(pair);
    waiting.clear();
  }
  return dims;
}

std::vector<int16_t> HeadRanking::dims(int tip_chunks, int fine_chunks) const {
  const std::vector<int16_t> all = dims();
  std::vector<size_t> order(static_cast<size_t>(tip_chunks));  // of pairs
  std::iota(order.begin(), order.end(), size_t{0});
  if (fine_chunks > 0 && !energy.empty()) {
    const auto of = [&](size_t pair) {
      return energy[static_cast<size_t>(all[2 * pair])] +
             energy[static_cast<size_t>(all[2 * pair + 1])];
    };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return of(a) > of(b); });
    std::sort(order.begin() + fine_chunks, order.end());
  }
  std::vector<int16_t> dims;
  for (const size_t pair : order) dims.insert(dims.end(), {all[2 * pair], all[2 * pair + 1]});
  return dims;
}

std::vector<int16_t> FcMap::slice_dims(int tip_chunks, int fine_chunks) const {
  const int chunks = fingerprint.key_dim / 2;
  require(tip_chunks >= 1 && tip_chunks <= chunks, "tip_chunks", tip_chunks,
          fmt::format("1 to {}, the number of FCs per head", chunks));
  require(fine_chunks >= 0 && fine_chunks <= tip_chunks, "fine_chunks", fine_chunks,
          fmt::format("0 to {}, the number of FCs in a slice", tip_chunks));
  std::vector<int16_t> dims;
  for (const auto& layer : heads) {
    for (const HeadRanking& head : layer) {
      const std::vector<int16_t> own = head.dims(tip_chunks, fine_chunks);
      dims.insert(dims.end(), own.begin(), own.end());
    }
  }
  return dims;
}

void FcMap::require_fits(const ModelFingerprint& model, const std::string& path) const {
  const auto require = [&](std::string_view field, const auto& map_value, const auto& model_value) {
    if (map_value == model_value) return;
    throw InputError(fmt::format(
        "{}: this FC map belongs to another model: {} is {} in the map, but {} in the model; "
        "calibrate this model (fasa calibrate), or give the map of this model (--map)",
        path, field, map_value, model_value));
  };
  const ModelFingerprint& own = fingerprint;
  require("model_type", own.model_type, model.model_type);
  require("layers", own.layers, model.layers);
  require("kv_heads", own.kv_heads, model.kv_heads);
  require("query_heads", own.query_heads, model.query_heads);
  require("key_dim", own.key_dim, model.key_dim);
  require("value_dim", own.value_dim, model.value_dim);
  require("rotary_dims", own.rotary_dims, model.rotary_dims);
  require("rotary_layout", own.rotary_layout, model.rotary_layout);
  require("rope_theta", own.rope_theta, model.rope_theta);
  require("rope_scaling", fmt::format("'{}'", own.rope_scaling),
          fmt::format("'{}'", model.rope_scaling));
  require("the number of key_rows", own.key_rows.size(), model.key_rows.size());
  for (size_t layer = 0; layer < own.key_rows.size(); ++layer) {
    // The bits of a row are long: print only the beginning.
    const auto& [in_map, in_model] =
        std::mismatch(own.key_rows[layer].begin(), own.key_rows[layer].end(),
                      model.key_rows[layer].begin(), model.key_rows[layer].end());
    const auto from = in_map - own.key_rows[layer].begin();
    const auto excerpt = [&](const std::string& row) {
      const auto begin = std::min<size_t>(static_cast<size_t>(from) / 4 * 4, row.size());
      return fmt::format("{} (from digit {})", row.substr(begin, 8), begin);
    };
    if (in_map == own.key_rows[layer].end() && in_model == model.key_rows[layer].end()) continue;
    require(fmt::format("key_rows[{}] (weights of k_proj)", layer), excerpt(own.key_rows[layer]),
            excerpt(model.key_rows[layer]));
  }
}

void FcMap::require_fits(const Geometry& geometry, const std::string& path) const {
  require_fits(with_heads_of(geometry, fingerprint), path);
}

FcMap FcMap::load(const std::string& path) {
  std::string text;
  try {
    text = read_file(path, {.what = "FC map"});
  } catch (const InputError& error) {
    throw InputError(
        fmt::format("{}; make one with fasa calibrate -o FILE and give it as --map", error.what()));
  }
  return parse(text, path);
}

void FcMap::save(const std::string& path) const { write_file_atomically(path, to_json()); }

std::vector<int16_t> all_slice_dims(const Geometry& geometry) {
  std::vector<int16_t> dims;
  dims.reserve(static_cast<size_t>(geometry.layers) * static_cast<size_t>(geometry.kv_heads) *
               static_cast<size_t>(geometry.key_dim));
  for (int head = 0; head < geometry.layers * geometry.kv_heads; ++head) {
    for (int chunk = 0; chunk < geometry.chunks(); ++chunk) {
      const Geometry::Pair pair = geometry.chunk_dims(chunk);
      dims.push_back(static_cast<int16_t>(pair.first));
      dims.push_back(static_cast<int16_t>(pair.second));
    }
  }
  return dims;
}

namespace {

// Slice dimensions per head. Throws UsageError unless every head has the same number.
size_t dims_a_head(const std::vector<int16_t>& slice_dims, const Geometry& whole) {
  const size_t heads = static_cast<size_t>(whole.layers) * static_cast<size_t>(whole.kv_heads);
  if (slice_dims.size() % heads != 0) {
    throw UsageError(
        fmt::format("slice_dims has {} entries; expected a multiple of the number of heads, {}",
                    slice_dims.size(), heads));
  }
  return slice_dims.size() / heads;
}

}  // namespace

std::vector<int16_t> configured_slice_dims(const Config& config, const Geometry& geometry,
                                           const FcMap* map) {
  config.validate_for(geometry);
  const int chunks = config.effective_tip_chunks(geometry.chunks());
  if (map != nullptr) return map->slice_dims(chunks, config.effective_fine_chunks());
  if (!config.ranks_chunks(geometry.chunks())) {
    std::vector<int16_t> all = all_slice_dims(geometry);
    const auto taken = 2 * static_cast<size_t>(chunks);
    std::vector<int16_t> dims;
    for (size_t head = 0; head < all.size(); head += static_cast<size_t>(geometry.key_dim)) {
      const auto first = all.begin() + static_cast<int64_t>(head);
      dims.insert(dims.end(), first, first + static_cast<int64_t>(taken));
    }
    return dims;
  }
  throw UsageError(fmt::format(
      "slices of {} of {} frequency chunks, {} in int4, need an FC map that selects "
      "them; make one with fasa calibrate -o FILE and give it, or use the default slice "
      "(all chunks)",
      chunks, geometry.chunks(), config.effective_fine_chunks()));
}

std::vector<int16_t> share_of_slice_dims(const std::vector<int16_t>& slice_dims,
                                         const Geometry& whole, HeadRange heads) {
  const auto count = static_cast<size_t>(whole.share(heads).kv_heads);
  const size_t dims = dims_a_head(slice_dims, whole);
  std::vector<int16_t> part;
  for (int layer = 0; layer < whole.layers; ++layer) {
    const size_t head = static_cast<size_t>(layer) * static_cast<size_t>(whole.kv_heads) +
                        static_cast<size_t>(heads.first);
    const auto first = slice_dims.begin() + static_cast<int64_t>(head * dims);
    part.insert(part.end(), first, first + static_cast<int64_t>(count * dims));
  }
  return part;
}

std::vector<int16_t> layer_of_slice_dims(const std::vector<int16_t>& slice_dims,
                                         const Geometry& whole, int layer) {
  whole.only_layer(layer);  // throws if the layer does not exist
  const auto dims = static_cast<int64_t>(dims_a_head(slice_dims, whole)) * whole.kv_heads;
  return {slice_dims.begin() + layer * dims, slice_dims.begin() + (layer + 1) * dims};
}

}  // namespace fasa
