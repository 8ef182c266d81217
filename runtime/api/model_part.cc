#include "runtime/api/model_part.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/calibrate/fc_map.h"
#include "runtime/config/layer_budgets.h"

namespace fasa {
namespace {

template <typename Value>
std::vector<Value> slice_of(const std::vector<Value>& all, size_t first, size_t count) {
  const auto begin = all.begin() + static_cast<int64_t>(first);
  return {begin, begin + static_cast<int64_t>(count)};
}

void require_layers(const Geometry& geometry, LayerRange layers) {
  if (layers.first >= 0 && layers.count >= 1 && layers.first <= geometry.layers - layers.count) {
    return;
  }
  throw UsageError(
      fmt::format("layers from {}, {} of them; allowed: at least one layer, within 0 to {}",
                  layers.first, layers.count, geometry.layers - 1));
}

// Config of `layers` alone; each layer keeps its budget from the whole model's settings.
Config config_of_layers(const Config& config, const Geometry& geometry, LayerRange layers) {
  config.validate_for(geometry);
  Config part = config;
  Config::Selection& selection = part.selection;
  selection.fac_tokens.clear();
  selection.dense_layers.clear();
  const std::vector<TokenBudget> budgets = layer_budgets(config, geometry);
  for (int layer = 0; layer < layers.count; ++layer) {
    const TokenBudget& budget = budgets[static_cast<size_t>(layers.first + layer)];
    selection.fac_tokens.push_back({.tokens = budget.tokens,
                                    .share = budget.share,
                                    .min_tokens = budget.min_tokens,
                                    .max_tokens = budget.max_tokens});
    if (config.is_dense(layers.first + layer)) selection.dense_layers.push_back(layer);
  }
  return part;
}

}  // namespace

ModelPart part_of_model(const Config& config, const Geometry& geometry,
                        const std::vector<int16_t>& slice_dims, LayerRange layers,
                        HeadRange heads) {
  if (heads.count == 0 && heads.first >= 0 && heads.first < geometry.kv_heads) {
    heads.count = geometry.kv_heads - heads.first;
  }
  if (layers.count == 0) layers.count = geometry.layers - layers.first;
  require_layers(geometry, layers);
  ModelPart part{.config = config,
                 .geometry = geometry.share(heads),
                 .slice_dims = share_of_slice_dims(slice_dims, geometry, heads)};
  if (layers.first == 0 && layers.count == geometry.layers) return part;
  if (geometry.shared_layers > 0) {
    throw UsageError(
        "layers share the keys and values of earlier ones: a part of the layers is not supported; "
        "give all layers");
  }
  const auto first = static_cast<size_t>(layers.first);
  const auto count = static_cast<size_t>(layers.count);
  const size_t dims = part.slice_dims.size() / static_cast<size_t>(geometry.layers);  // per layer
  part.slice_dims = slice_of(part.slice_dims, first * dims, count * dims);
  part.config = config_of_layers(config, geometry, layers);
  part.geometry.layers = layers.count;
  if (!geometry.windows.empty()) {
    part.geometry.windows = slice_of(geometry.windows, first, count);
  }
  return part;
}

}  // namespace fasa
