// How far back a sequence can be cut: of layers that see a window only, pages that nobody sees any
// more need not be kept. Of all layers, where every one has a window; else of those with window rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/layout.h"
#include "scheduler/step_settings.h"

namespace fasa {

// Tokens that a conversation can be cut back by from its cache, where nothing else is said: a few
// turns.
inline constexpr int64_t kConversationRollback = 2048;

// The rollback window of a sequence that can be truncated anywhere.
inline constexpr int64_t kUnlimitedRollback = INT64_MAX;

// Pages that may go wait until there are so many: streams are waited for then.
inline constexpr int64_t kPagesDroppedTogether = 8;

// Tokens that a token needs of what may be given back, itself among them: what any layer there
// sees, and, where nothing else is kept, what protected rows are made from. 0: all, for a layer has
// no window, or a selection has a memory of its own.
inline int64_t seen_tokens(const StepSettings& settings) {
  int64_t seen = settings.selection == nullptr ? settings.layout.recent + 1 : 0;
  if (settings.has_window_rows()) seen = 1;
  for (const LayerSettings& layer : settings.layers) {
    if (settings.has_window_rows() && !layer.in_window_rows) continue;
    seen = seen == 0 || layer.window == 0 ? 0 : std::max<int64_t>(seen, layer.window);
  }
  return seen;
}

// Pages at the beginning that are kept as well: the sinks'.
inline int64_t first_pages_kept(const StepSettings& settings) {
  return settings.has_window_rows() ? 0 : pages_of(settings.layout.sinks);
}

// The first page that a sequence of `tokens` tokens needs to go on, but for those.
inline int64_t first_needed_page(const StepSettings& settings, int64_t tokens) {
  const int64_t seen = seen_tokens(settings);
  return seen == 0 ? 0 : std::max<int64_t>(0, tokens + 1 - seen) / kPageTokens;
}

// Whether a sequence can be cut to `tokens` tokens that has nothing of the pages before
// `first_page`.
inline bool can_truncate_from(const StepSettings& settings, int64_t first_page, int64_t tokens) {
  return tokens == 0 || first_page == 0 || first_needed_page(settings, tokens) >= first_page;
}

// The most pages that a sequence with this rollback window has at a time, while it grows to
// `tokens` tokens in steps of `step_tokens`: of window rows, where there are any. Below 0: the settings'.
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
