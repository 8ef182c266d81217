#include "runtime/settings.h"

#include <algorithm>
#include <cmath>

namespace fasa {
namespace {

TokenBudget budget_of(const TokenCount& count) {
  constexpr int64_t kMost = INT32_MAX;
  return {.tokens = static_cast<int32_t>(std::min(count.tokens, kMost)),
          .share = static_cast<float>(count.share)};
}

// Twice the largest set, so that what left the set lately is still there (performance.md's two to
// three times); a share of an unknown context counts as the whole default set.
int default_hot_rows(const Config& config, const Geometry& geometry, int64_t max_context) {
  constexpr int64_t kUnknownSet = 256;
  int64_t largest = 0;
  for (int layer = 0; layer < geometry.layers; ++layer) {
    if (config.is_dense(layer)) continue;
    const TokenCount& count = config.fac_tokens_of(layer);
    const auto share =
        static_cast<int64_t>(std::ceil(count.share * static_cast<double>(max_context)));
    const int64_t tokens = count.tokens > 0 ? count.tokens : max_context > 0 ? share : kUnknownSet;
    largest = std::max(largest, tokens);
  }
  return static_cast<int>(std::min<int64_t>(2 * largest, INT32_MAX));
}

}  // namespace

StepSettings make_step_settings(const Config& config, const Geometry& geometry, DType row_dtype,
                                DeviceKind device, int64_t max_context) {
  geometry.validate();
  config.validate();
  config.validate_for(geometry);
  StepSettings settings;
  settings.scale = geometry.scale;
  settings.rows_on_device =
      device == DeviceKind::kCpu || config.placement.rows == RowPlacement::kDevice;
  settings.device_copies = !settings.rows_on_device && config.placement.rows == RowPlacement::kAuto;
  settings.copy_streams = config.prefetch.streams;
  settings.prefetch = {.predictor = config.prefetch.predictor, .depth = config.prefetch.depth};
  settings.replacement = config.placement.replacement;

  CacheLayout& layout = settings.layout;
  layout.layers = geometry.layers;
  layout.kv_heads = geometry.kv_heads;
  layout.group = geometry.group();
  layout.row = {row_dtype, geometry.key_dim, geometry.value_dim};
  layout.slice = {config.effective_slice_dtype(),
                  2 * config.effective_tip_chunks(geometry.chunks())};
  layout.sinks = config.selection.sinks;
  layout.recent = config.selection.recent;
  if (!settings.rows_on_device) {
    layout.hot_rows =
        config.placement.hot_rows.value_or(default_hot_rows(config, geometry, max_context));
    if (max_context > 0) {
      layout.hot_rows = static_cast<int>(std::min<int64_t>(layout.hot_rows, max_context));
    }
  }
  for (int layer = 0; layer < geometry.layers; ++layer) {
    settings.layers.push_back(
        {.dense = config.selection.kind == SelectionKind::kFull || config.is_dense(layer),
         .budget = budget_of(config.fac_tokens_of(layer)),
         .window = geometry.window(layer)});
  }
  const bool all_dense = std::all_of(settings.layers.begin(), settings.layers.end(),
                                     [](const LayerSettings& layer) { return layer.dense; });
  if (all_dense) {
    layout.slice.dims = 0;
    layout.hot_rows = 0;
  }
  return settings;
}

}  // namespace fasa
