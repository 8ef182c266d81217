// How far back a sequence can be cut: where every layer sees a window only, pages that only older
// tokens saw need not be kept.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/layout.h"
#include "scheduler/step_settings.h"

namespace fasa {

// Tokens that a conversation can be cut back by from its cache, where nothing else is said: a few turns.
inline constexpr int64_t kConversationReach = 2048;

// Pages that may go wait until there are so many: streams are waited for then.
inline constexpr int64_t kPagesDroppedTogether = 8;

// Tokens that a token needs, itself among them: what any layer sees, and what residents are made from.
// 0: all, for a layer has no window, or a selection has a memory of its own.
inline int64_t seen_tokens(const StepSettings& settings) {
  int64_t seen = settings.selection == nullptr ? settings.layout.recent + 1 : 0;
  for (const LayerSettings& layer : settings.layers) {
    seen = seen == 0 || layer.window == 0 ? 0 : std::max<int64_t>(seen, layer.window);
  }
  return seen;
}

// The first page that a sequence of `tokens` tokens needs to go on, but for the sinks'.
inline int64_t first_needed_page(const StepSettings& settings, int64_t tokens) {
  const int64_t seen = seen_tokens(settings);
  return seen == 0 ? 0 : std::max<int64_t>(0, tokens + 1 - seen) / kPageTokens;
}

// The most pages that a sequence of this reach has at a time, while it grows to `tokens` tokens in
// steps of `step_tokens`. A reach below 0: it keeps all.
inline int64_t most_pages(const StepSettings& settings, int64_t tokens, int step_tokens,
                          int64_t reach) {
  const int64_t all = pages_of(tokens);
  const int64_t seen = seen_tokens(settings);
  if (reach < 0 || seen == 0) return all;
  const int64_t slack = pages_of(settings.layout.sinks) + kPagesDroppedTogether + 1;
  return std::min(
      all, pages_of(seen) + pages_of(std::min(reach, tokens)) + pages_of(step_tokens) + slack);
}

}  // namespace fasa
