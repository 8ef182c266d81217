// The rollback window: how far back a sequence can be truncated. Pages older than what any token in
// the window sees are freed: all pages if every layer has a window, else those of window rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/layout.h"
#include "scheduler/step_settings.h"

namespace fasa {

// Default rollback window of a cached conversation, in tokens: a few turns.
inline constexpr int64_t kConversationRollback = 2048;

// The rollback window of a sequence that can be truncated anywhere.
inline constexpr int64_t kUnlimitedRollback = INT64_MAX;

// Pages are freed in batches of this size, because freeing synchronises streams.
inline constexpr int64_t kPagesDroppedTogether = 8;

// Tokens that the next token needs, itself included, from the pages that can be freed: the largest
// window of their layers and, if all layers have windows, the source of the protected rows. 0: all
// tokens, because a layer has no window or a selection has memory.
inline int64_t seen_tokens(const StepSettings& settings) {
  int64_t seen = settings.selection == nullptr ? settings.layout.recent + 1 : 0;
  if (settings.has_window_rows()) seen = 1;
  for (const LayerSettings& layer : settings.layers) {
    if (settings.has_window_rows() && !layer.in_window_rows) continue;
    seen = seen == 0 || layer.window == 0 ? 0 : std::max<int64_t>(seen, layer.window);
  }
  return seen;
}

// Pages at the beginning that are never freed: those of the sinks.
inline int64_t first_pages_kept(const StepSettings& settings) {
  return settings.has_window_rows() ? 0 : pages_of(settings.layout.sinks);
}

// The first page, after the sinks' pages, that a sequence of `tokens` tokens still needs.
inline int64_t first_needed_page(const StepSettings& settings, int64_t tokens) {
  const int64_t seen = seen_tokens(settings);
  return seen == 0 ? 0 : std::max<int64_t>(0, tokens + 1 - seen) / kPageTokens;
}

// True if a sequence with this rollback window frees pages of rows that have slices.
inline bool drops_coded_rows(const StepSettings& settings, int64_t rollback_tokens) {
  return rollback_tokens >= 0 && !settings.has_window_rows() && seen_tokens(settings) > 0;
}

// True if a sequence without the pages before `first_page` can be truncated to `tokens` tokens.
inline bool can_truncate_from(const StepSettings& settings, int64_t first_page, int64_t tokens) {
  return tokens == 0 || first_page == 0 || first_needed_page(settings, tokens) >= first_page;
}

// Maximum number of pages held at a time while a sequence grows to `tokens` tokens in steps of
// `step_tokens`; counts window rows if there are any. `rollback_tokens` below 0: the settings'
// value.
inline int64_t max_pages(const StepSettings& settings, int64_t tokens, int step_tokens,
                         int64_t rollback_tokens) {
  const int64_t all = pages_of(tokens);
  const int64_t seen = seen_tokens(settings);
  if (rollback_tokens < 0) rollback_tokens = settings.rollback_tokens;
  if (rollback_tokens < 0 || seen == 0) return all;
  const int64_t slack = first_pages_kept(settings) + kPagesDroppedTogether + 1;
  return std::min(all, pages_of(seen) + pages_of(std::min(rollback_tokens, tokens)) +
                           pages_of(step_tokens) + slack);
}

}  // namespace fasa
