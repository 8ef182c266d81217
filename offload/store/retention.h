// Which rows of a layer group its sequences keep. Pages older than what any token in the rollback
// window sees are freed: those of the sequence's layers with a window.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/layout.h"

namespace fasa {

// Default rollback window of a cached conversation, in tokens: a few turns.
inline constexpr int64_t kConversationRollback = 2048;

// The rollback window of a sequence that can be truncated anywhere.
inline constexpr int64_t kUnlimitedRollback = INT64_MAX;

// Pages are freed in batches of this size, because freeing device copies waits for streams.
inline constexpr int64_t kPagesDroppedTogether = 8;

// Pages [first, end).
struct PageRange {
  int64_t first = 0, end = 0;

  int64_t pages() const { return std::max<int64_t>(0, end - first); }
  bool operator==(const PageRange&) const = default;
};

struct Retention {
  int64_t seen = 0;         // tokens that a new token needs, itself included; 0: all
  int64_t first_pages = 0;  // pages at the beginning that are never freed: those of the sinks

  // Pages that a cut to `tokens` tokens needs.
  PageRange needed_by(int64_t tokens) const {
    return {first_needed_page(tokens), pages_of(tokens)};
  }
  // A rollback window beside a held length before it (RetainedPages::hold): both take no more pages
  // than the window alone, unless the pages that a length needs are more than that.
  int64_t beside_held(int64_t rollback_tokens) const {
    return std::max<int64_t>(0, rollback_tokens - held_tokens());
  }

  // True if a sequence with this rollback window (below 0: none) frees pages.
  bool frees(int64_t rollback_tokens) const { return rollback_tokens >= 0 && seen > 0; }
  // The first page, after `first_pages`, that a sequence of `tokens` tokens still needs.
  int64_t first_needed_page(int64_t tokens) const {
    return seen == 0 ? 0 : std::max<int64_t>(0, tokens + 1 - seen) / kPageTokens;
  }
  // True if a sequence without the pages before `first_page` can be truncated to `tokens` tokens.
  bool can_truncate(int64_t first_page, int64_t tokens) const {
    return tokens == 0 || first_page == 0 || first_needed_page(tokens) >= first_page;
  }
  // Maximum number of pages held at a time while a sequence grows to `tokens` tokens in steps of
  // `step_tokens`.
  int64_t max_pages(int64_t tokens, int step_tokens, int64_t rollback_tokens) const {
    const int64_t all = pages_of(tokens);
    if (!frees(rollback_tokens)) return all;
    if (rollback_tokens > 0) rollback_tokens = std::max(rollback_tokens, held_tokens());
    const int64_t slack = first_pages + kPagesDroppedTogether + 1;
    return std::min(all, pages_of(seen) + pages_of(std::min(rollback_tokens, tokens)) +
                             pages_of(step_tokens) + slack);
  }

 private:
  int64_t held_tokens() const { return (pages_of(seen) + 1) * kPageTokens; }
};

// Layers whose rows share pages.
struct LayerGroup {
  CacheLayout layout;
  Retention retention;
};

}  // namespace fasa
