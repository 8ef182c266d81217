// How far back a sequence can be cut: anywhere, or within its last tokens, and at a held length.
// What no cut needs can be freed.
#pragma once

#include <cstdint>

#include "offload/store/sequence_rows.h"

namespace fasa {

class KvSequence;

class RollbackWindow {
 public:
  // The window of `sequence`, which outlives it; `tokens` as for set_tokens().
  RollbackWindow(const KvSequence& sequence, int64_t tokens)
      : sequence_(sequence), tokens_(tokens) {}

  // Allows truncation and forks only within the last `tokens` tokens, or at 0; below 0: no limit.
  // Older pages are freed as the sequence grows, see Retention.
  void set_tokens(int64_t tokens) { tokens_ = tokens; }
  int64_t tokens() const { return tokens_; }
  // Truncation to the present length, and to `tokens` tokens, stays possible beside it
  // (SequenceMemory::mark_turn, RetainedPages::hold).
  void mark_turn();
  void hold(int64_t tokens);
  int64_t held() const;  // 0: none
  // The most tokens, at most `tokens`, that the sequence can be truncated to; and the same as far
  // as pages allow it.
  int64_t resume_point(int64_t tokens) const;
  int64_t memory_point(int64_t tokens) const;
  // True if all pages that the sequence needs at that length are still there.
  bool can_truncate_to(int64_t tokens) const;
  int64_t first_page() const;
  // The shortest length in the window, as far as `rows`, which are the sequence's, are concerned.
  int64_t oldest_cut(const SequenceRows& rows) const;
  int64_t droppable() const;  // pages

 private:
  const KvSequence& sequence_;
  int64_t tokens_;
};

}  // namespace fasa
