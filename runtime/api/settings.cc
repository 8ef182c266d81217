#include "runtime/api/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/raw_slopes.h"
#include "runtime/config/layer_budgets.h"

namespace fasa {
namespace {

// Twice the largest set, so that tokens that left the set recently are still cached (performance.md
// finds two to three times best). With an unknown context, a share counts as the largest default
// set. Counted in bytes of bf16 rows: coded rows are half as large, and twice as many are cached.
int default_hot_rows(const std::vector<LayerSettings>& layers, const RowFormat& row,
                     int64_t max_context) {
  int64_t largest = 0;
  for (const LayerSettings& layer : layers) {
    if (layer.dense) continue;
    const auto context = static_cast<int32_t>(std::min<int64_t>(max_context, INT32_MAX));
    const int64_t tokens = layer.budget.tokens > 0 ? layer.budget.tokens
                           : max_context > 0       ? layer.budget.of(context, 0)
                                                   : kDefaultFacTokens.max_tokens;
    largest = std::max(largest, tokens);
  }
  const int64_t sets = row.dtype.is_coded() ? 4 : 2;
  return static_cast<int>(std::min<int64_t>(sets * largest, INT32_MAX));
}

RowTier tier_of(RowPlacement rows) {
  switch (rows) {
    case RowPlacement::kHost:
      return RowTier::kHost;
    case RowPlacement::kAuto:
      return RowTier::kMirrored;
    case RowPlacement::kDevice:
      break;
  }
  return RowTier::kDevice;
}

// True if some layers have a window and others attend to all tokens.
bool has_mixed_windows(const Geometry& geometry) {
  const auto& windows = geometry.windows;
  return std::any_of(windows.begin(), windows.end(), [](int window) { return window > 0; }) &&
         std::any_of(windows.begin(), windows.end(), [](int window) { return window == 0; });
}

// Gives each layer its index in its layout. A layer that shares another's keys and values has that
// layer's: the last one of the layout, since only layers of one layout share.
void place_layers(const Geometry& geometry, StepSettings& settings) {
  for (int i = 0; i < geometry.layers; ++i) {
    LayerSettings& layer = settings.layers[static_cast<size_t>(i)];
    CacheLayout& layout = layer.in_window_rows ? settings.window_rows : settings.layout;
    if (geometry.is_shared(i)) {
      layer.sharer = ++layout.sharers;
    } else {
      ++layout.layers;
    }
    layer.index = layout.layers - 1;
  }
}

// Layers with a window get a layout of their own.
void move_to_window_rows(const Geometry& geometry, StepSettings& settings) {
  const CacheLayout& layout = settings.layout;
  settings.window_rows = layout.without_slices();
  settings.window_rows.sinks = 0;
  if (geometry.has_window_heads()) {
    const HeadShape& heads = geometry.window_heads;
    settings.window_rows.kv_heads = heads.kv_heads;
    settings.window_rows.gqa_group = geometry.query_heads / heads.kv_heads;
    settings.window_rows.row = {layout.row.dtype, heads.key_dim, heads.value_dim};
  }
  settings.rollback_tokens = kConversationRollback;
  for (LayerSettings& layer : settings.layers) {
    layer.in_window_rows = layer.window > 0;
    layer.dense |= layer.in_window_rows;
  }
}

void check_settings(const Config& config, const Geometry& geometry, RowDType row_dtype,
                    const DeviceTraits& traits, bool window_rows) {
  geometry.validate();
  config.validate();
  Config with_rows = config;  // replaces an unset row dtype by the model's
  with_rows.placement.row_dtype = row_dtype;
  with_rows.validate_for(geometry);
  config.validate_on(traits);
  if (geometry.has_window_heads() && !window_rows) {
    throw UsageError(
        "geometry.window_heads: supported by the sequences API, in models where some layers have a "
        "window and others have none");
  }
}

// What all layers have in common.
StepSettings common_settings(const Config& config, const Geometry& geometry, RowDType row_dtype,
                             const DeviceTraits& traits) {
  StepSettings settings;
  settings.select_scratch = traits.select_scratch;
  settings.low_bit_by_page = traits.low_bit_by_page;
  settings.page_queries = traits.page_queries;
  settings.rates = traits.rates;
  settings.scale = geometry.scale;
  settings.score_cap = raw_score_cap(geometry);
  settings.linear = geometry.linear;
  settings.snapshots = config.memory.snapshots;
  settings.rows = traits.unified ? RowTier::kDevice : tier_of(config.placement.rows);
  // On the CPU, partials should stay in its caches; on other devices a wave costs two launches.
  settings.dense_wave = (traits.unified ? 64 : 256) * kPageTokens;
  settings.copy_streams = config.prefetch.streams;
  settings.head_groups = config.prefetch.head_groups.value_or(0);
  settings.prefetch = {.predictor = config.prefetch.predictor, .depth = config.prefetch.depth};

  CacheLayout& layout = settings.layout;
  layout.kv_heads = geometry.kv_heads;
  layout.gqa_group = geometry.gqa_group();
  layout.row = {row_dtype, geometry.key_dim, geometry.value_dim};
  const int fine = 2 * config.effective_fine_chunks();
  layout.slice = {config.effective_slice_dtype(),
                  2 * config.effective_tip_chunks(geometry.chunks()) + fine, SliceOrder::kByGroup,
                  fine};
  layout.sinks = config.selection.sinks;
  layout.recent = config.selection.recent;
  return settings;
}

StepSettings settings_of(const Config& config, const Geometry& geometry, RowDType row_dtype,
                         const DeviceTraits& traits, int64_t max_context, bool window_rows) {
  check_settings(config, geometry, row_dtype, traits, window_rows);
  StepSettings settings = common_settings(config, geometry, row_dtype, traits);
  CacheLayout& layout = settings.layout;
  const std::vector<TokenBudget> budgets = layer_budgets(config, geometry);
  const TokenBudget low_bit = budget_of(config.low_bit_tokens(geometry.chunks()));
  for (int layer = 0; layer < geometry.layers; ++layer) {
    settings.layers.push_back(
        {.dense = config.selection.kind == SelectionKind::kFull || config.is_dense(layer),
         .budget = budgets[static_cast<size_t>(layer)],
         .low_bit = low_bit,
         .window = geometry.window(layer)});
  }
  if (window_rows) move_to_window_rows(geometry, settings);
  place_layers(geometry, settings);
  if (settings.access() == RowAccess::kOverLink) {
    settings.max_hot_rows = config.placement.hot_rows.value_or(
        default_hot_rows(settings.layers, layout.row, max_context));
    if (max_context > 0) {
      settings.max_hot_rows =
          static_cast<int>(std::min<int64_t>(settings.max_hot_rows, max_context));
    }
  }
  const bool all_dense = std::all_of(settings.layers.begin(), settings.layers.end(),
                                     [](const LayerSettings& layer) { return layer.dense; });
  if (all_dense) settings.max_hot_rows = 0;
  if (all_dense || !config.reads_slices()) layout.slice = {};
  if (layout.slice.dims > 0 && config.has_low_bit_set(geometry.chunks())) {
    layout.values = {config.effective_value_codes(), geometry.value_dim, SliceOrder::kByToken};
  }
  if (traits.scores != nullptr && !traits.scores(layout.gqa_group, layout.slice.dims)) {
    throw UsageError(
        fmt::format("{} query heads per KV head with slices of {} dimensions: not supported by the "
                    "GPU kernels; allowed: fewer tip_chunks or fine_chunks, selection.kind = full, "
                    "--device cpu",
                    layout.gqa_group, layout.slice.dims));
  }
  if (all_dense) return settings;
  settings.selection = config.make_selection();
  settings.selection_evicts =
      settings.selection != nullptr && settings.selection->make_policy() != nullptr;
  return settings;
}

}  // namespace

StepSettings make_step_settings(const Config& config, const Geometry& geometry, RowDType row_dtype,
                                const DeviceTraits& traits, int64_t max_context) {
  StepSettings settings =
      settings_of(config, geometry, row_dtype, traits, max_context, has_mixed_windows(geometry));
  // Only the select kernel names the rows that it reads.
  const bool selects = settings.selection == nullptr && !settings.selection_evicts;
  if (traits.done_on_return && traits.unified && selects && !settings.has_window_rows()) {
    settings.rows = RowTier::kDisk;
  }
  return settings;
}

StepSettings make_paged_step_settings(const Config& config, const Geometry& geometry,
                                      RowDType row_dtype, const DeviceTraits& traits,
                                      int64_t max_context) {
  if (geometry.shared_layers > 0) {
    throw UsageError(fmt::format(
        "geometry.shared_layers = {}: supported by the sequences API; the pages API allows 0, with "
        "the keys and values of every layer appended",
        geometry.shared_layers));
  }
  return settings_of(config, geometry, row_dtype, traits, max_context, false);
}

}  // namespace fasa
