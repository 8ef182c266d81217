// The configuration as steps need it, resolved per layer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/layout.h"
#include "kernels/params.h"
#include "offload/device_traits.h"
#include "offload/store/retention.h"
#include "offload/store/row_tier.h"
#include "scheduler/prefetch_options.h"

namespace fasa {

class TokenSelection;  // scheduler/selection/token_selection.h

struct LayerSettings {
  bool dense = false;  // attends to every visible token, never pruned
  TokenBudget budget;
  TokenBudget low_bit = {};     // tokens outside the set, attended to by codes
  int window = 0;               // tokens; 0: none
  bool in_window_rows = false;  // its rows are window rows; dense then
  int index = 0;                // of the layer that stores its rows, in its layout
  int sharer = 0;               // see StepParams; above 0: it stores nothing

  // Budget of a prediction: a quarter more than the set, as a wrong row costs bandwidth and a
  // missing one costs time.
  TokenBudget prediction_budget() const {
    const auto more = [](int64_t tokens) {
      return static_cast<int32_t>(std::min<int64_t>(tokens * 5 / 4, INT32_MAX));
    };
    return {.tokens = more(budget.tokens),
            .share = std::min(budget.share * 1.25f, 1.0f),
            .min_tokens = more(budget.min_tokens),
            .max_tokens = more(budget.max_tokens)};
  }
  int attending_index() const { return index + sharer; }  // see StepParams
};

struct StepSettings {
  CacheLayout layout;  // all layers that store rows, except those with window rows
  // Sliding-window layers of a model that also has full layers: rows only, on the device; pages
  // older than the window are freed. Has no layers if the model is not mixed.
  CacheLayout window_rows;
  int64_t rollback_tokens = -1;     // default rollback window (retention.h); below 0: unlimited
  float scale = 1;                  // factor of q·k before the softmax
  float score_cap = 0;              // applied before the scale, see StepParams
  RowTier rows = RowTier::kDevice;  // of the main layout; window rows are on the device
  int max_hot_rows = 0;             // per sequence and head; the runtime may choose fewer
  // Tokens per wave of dense attention with rows on the device: a multiple of kPageTokens.
  int dense_wave = 64 * kPageTokens;
  int copy_streams = 2;
  int head_groups = 0;  // see head_groups.h; 0: chosen by the device's rates
  PrefetchOptions prefetch;
  std::vector<LayerSettings> layers;
  // Replaces the select kernel, only on the cpu device; null: the kernel selects.
  std::shared_ptr<const TokenSelection> selection;
  bool selection_evicts = false;                // it evicts, so it must observe every query
  SelectScratchBytes select_scratch = nullptr;  // the device's, see DeviceTraits
  bool low_bit_by_page = false;                 // the device's, see DeviceTraits
  int page_queries = 1;                         // the device's, see DeviceTraits
  DeviceRates rates;                            // the device's
  LinearShape linear = {};                      // layers with a state in place of rows
  SnapshotRule snapshots;                       // of these states

  int layer_count() const { return static_cast<int>(layers.size()); }
  const LayerSettings& layer(int index) const { return layers[static_cast<size_t>(index)]; }
  // Layers that store keys and values: the first ones.
  int storing_layers() const { return layout.layers + window_rows.layers; }
  // The layer with this attending_index() in the main layout.
  const LayerSettings& in_layout(int index) const {
    return *std::find_if(layers.begin(), layers.end(), [index](const LayerSettings& layer) {
      return !layer.in_window_rows && layer.attending_index() == index;
    });
  }
  bool has_window_rows() const { return window_rows.layers > 0; }
  const CacheLayout& layout_of(int index) const {
    return layer(index).in_window_rows ? window_rows : layout;
  }
  // How kernels reach rows that have no device copies.
  RowAccess access() const { return traits_of(rows).access; }
  RowAccess access(int index) const {
    return layer(index).in_window_rows ? RowAccess::kLocal : access();
  }
  // How kernels reach the rows of a sequence of at most `tokens` tokens; see HostRows.
  RowAccess access_of(int64_t tokens, int hot_rows) const {
    return pages_of(tokens) <= layout.copied_pages(hot_rows) ? RowAccess::kLocal : access();
  }
  // The layers of the main layout, and those with window rows. In mixed models only window rows are
  // freed. A selection with memory needs all tokens, and protected rows are made from recent ones.
  LayerGroup group() const {
    Retention retention{.seen = 0, .first_pages = pages_of(layout.sinks)};
    const bool all_have_windows = std::all_of(
        layers.begin(), layers.end(), [](const LayerSettings& layer) { return layer.window > 0; });
    if (all_have_windows && selection == nullptr)
      retention.seen = std::max<int64_t>(layout.recent + 1, longest_window());
    return {layout, retention};
  }
  LayerGroup window_group() const { return {window_rows, {.seen = longest_window()}}; }
  int64_t longest_window() const {
    int64_t longest = 0;
    for (const LayerSettings& layer : layers) longest = std::max<int64_t>(longest, layer.window);
    return longest;
  }
  // Tokens that a layer sees of a context.
  int32_t visible_tokens(int index, int64_t context) const {
    const int window = layer(index).window;
    return static_cast<int32_t>(window > 0 ? std::min<int64_t>(context, window) : context);
  }
  // True if a layer attends to all of `visible` tokens, so that nothing is scored. Over the link
  // only dense layers do: their pages are streamed, while a set of all tokens fits the hot rows.
  bool attends_to_all(int index, int32_t visible, RowAccess access) const {
    if (layer(index).dense) return true;
    return access == RowAccess::kLocal && !selection_evicts &&
           selected_tokens(index, visible) == visible;
  }
  // True if no layer selects among the local rows of a context.
  bool selects_all(int64_t context) const {
    for (int i = 0; i < layer_count(); ++i) {
      if (!attends_to_all(i, visible_tokens(i, context), RowAccess::kLocal)) return false;
    }
    return true;
  }
  // True if rows can be prefetched: they are on the host, and there are hot rows.
  bool prefetches(int hot_rows) const {
    return access() == RowAccess::kOverLink && !prefetch.off() && hot_rows > 0 && layer_count() > 1;
  }
  int prefetch_streams() const { return std::min(copy_streams, 2); }
  // Smallest budget: sinks, recent tokens and one token that competes.
  int32_t budget_floor() const { return layout.protected_tokens() + 1; }
  // Tokens in a layer's set and low-bit set together, given `visible` tokens.
  int32_t selected_tokens(int index, int32_t visible) const {
    return layer(index).budget.of(visible, budget_floor());
  }
  int32_t low_bit_tokens(int index, int32_t visible) const {
    if (layer(index).dense || !layout.has_values() || is_by_page(index)) return 0;
    return std::min(layer(index).low_bit.of(visible, 0), visible - selected_tokens(index, visible));
  }
  // Whether the low-bit set is all other tokens, attended to by page. Depends on the settings
  // alone, since the result's bits depend on it.
  bool is_by_page(int index) const { return low_bit_by_page && layer(index).low_bit.share == 1; }
  // Pages of such a set, given `visible` tokens that may begin inside a page; 0: none.
  int32_t low_bit_pages(int index, int32_t visible) const {
    const bool none = layer(index).dense || !layout.has_values() || !is_by_page(index) ||
                      selected_tokens(index, visible) == visible;
    return none ? 0 : pages_of(visible) + (layer(index).window > 0 ? 1 : 0);
  }
};

}  // namespace fasa
