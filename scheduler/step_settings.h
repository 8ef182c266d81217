// The configuration as the pipeline needs it, resolved per layer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/layout.h"
#include "kernels/params.h"
#include "offload/device_traits.h"
#include "scheduler/prefetch_options.h"

namespace fasa {

class TokenSelection;  // scheduler/selection/token_selection.h

struct LayerSettings {
  bool dense = false;  // attends to every visible token, never pruned
  TokenBudget budget;
  TokenBudget low_bit = {};     // tokens outside the set, attended to by codes
  int window = 0;               // tokens; 0: none
  bool in_window_rows = false;  // its rows are window rows; dense then
  int index = 0;                // among the layers of its layout

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
};

struct StepSettings {
  CacheLayout layout;  // all layers except those with window rows
  // Sliding-window layers of a model that also has full layers: rows only, on the device; pages
  // older than the window are freed. Has no layers if the model is not mixed.
  CacheLayout window_rows;
  // Default rollback window in tokens; below 0: unlimited. See rollback_window.h.
  int64_t rollback_tokens = -1;
  float scale = 1;      // factor of q·k before the softmax
  float score_cap = 0;  // applied before the scale, see StepParams
  bool rows_on_device = true;
  bool device_copies = false;  // copies of host rows, while device memory lasts
  int max_hot_rows = 0;        // per sequence and head; the runtime may choose fewer
  // Tokens per wave of dense attention with rows on the device: a multiple of kPageTokens.
  int dense_wave = 64 * kPageTokens;
  int copy_streams = 2;
  int head_groups = 0;  // see head_groups.h; 0: chosen by the device's rates
  PrefetchOptions prefetch;
  Replacement replacement = Replacement::kLru;
  std::vector<LayerSettings> layers;
  int page_tokens = 1;  // see SelectParams
  // Replaces the select kernel, only on the cpu device; null: the kernel selects.
  std::shared_ptr<const TokenSelection> selection;
  bool selection_evicts = false;                // it evicts, so it must observe every query
  bool selected_per_query_head = false;         // else per KV head
  SelectScratchBytes select_scratch = nullptr;  // the device's, see DeviceTraits
  bool low_bit_by_page = false;                 // the device's, see DeviceTraits
  DeviceRates rates;                            // the device's
  LinearShape linear = {};                      // layers with a state in place of rows

  int layer_count() const { return static_cast<int>(layers.size()); }
  const LayerSettings& layer(int index) const { return layers[static_cast<size_t>(index)]; }
  // The layer with this index in the layout.
  const LayerSettings& in_layout(int index) const {
    return *std::find_if(layers.begin(), layers.end(), [index](const LayerSettings& layer) {
      return !layer.in_window_rows && layer.index == index;
    });
  }
  bool has_window_rows() const { return window_rows.layers > 0; }
  const CacheLayout& layout_of(int index) const {
    return layer(index).in_window_rows ? window_rows : layout;
  }
  bool on_device(int index) const {
    return rows_on_device || layer(index).in_window_rows;
  }  // its rows
  // How kernels reach rows that have no device copies.
  RowAccess access() const { return rows_on_device ? RowAccess::kLocal : RowAccess::kOverLink; }
  // The longest sequence, in pages, whose rows take no more device memory than `hot_rows` hot rows,
  // their table and protected rows would.
  int64_t copied_pages(int hot_rows) const {
    const int64_t block = layout.row_block_bytes();
    if (rows_on_device || block == 0) return 0;
    return (layout.hot_bytes(hot_rows) + layout.hot_table_bytes(hot_rows) +
            layout.protected_bytes()) /
           block;
  }
  // How kernels reach the rows of a sequence of at most `tokens` tokens.
  RowAccess access_of(int64_t tokens, int hot_rows) const {
    return pages_of(tokens) <= copied_pages(hot_rows) ? RowAccess::kLocal : access();
  }
  // True if no layer's set leaves out a visible token of a context, so that nothing is scored.
  bool selects_all(int64_t context) const {
    if (selection_evicts) return false;
    for (int i = 0; i < layer_count(); ++i) {
      const auto visible = static_cast<int32_t>(
          layer(i).window > 0 ? std::min<int64_t>(context, layer(i).window) : context);
      if (!layer(i).dense && selected_tokens(i, visible) < visible) return false;
    }
    return true;
  }
  // True if rows can be prefetched: they are on the host, and there are hot rows.
  bool prefetches(int hot_rows) const {
    return !rows_on_device && !prefetch.off() && hot_rows > 0 && layer_count() > 1;
  }
  // Number of token sets per sequence and layer.
  int selected_heads() const {
    return selected_per_query_head ? layout.query_heads() : layout.kv_heads;
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
