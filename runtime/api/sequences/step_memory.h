// Which memory a sequence and a step need, and getting it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/api/sequences/extra_hot_rows.h"
#include "runtime/api/sequences/memory_guard.h"
#include "runtime/api/sequences/row_copies.h"
#include "runtime/api/sequences/runtime_parts.h"

namespace fasa {

class StepMemory {
 public:
  // `hot_rows`: none where their number is not ours to choose.
  StepMemory(const RuntimeParts& parts, std::optional<int> hot_rows)
      : parts_(parts), hot_rows_(parts, hot_rows), copies_(parts) {}

  // See Runtime; outside of steps.
  KvMemory estimate(int64_t tokens, int step_tokens, int64_t rollback_tokens) const;
  void reserve(SequenceId id, int64_t tokens, int step_tokens);
  // All that a step takes memory for. Throws BudgetError; the guard has what was had before.
  void prepare(std::span<const StepSequence> sequences, MemoryGuard& guard);

  // See MemoryReclaimer.
  bool reclaim(MemorySpace space, size_t bytes) {
    return hot_rows_.reclaim(space, bytes) || copies_.reclaim(space, bytes);
  }
  bool reclaim_copies(MemorySpace space, size_t bytes) { return copies_.reclaim(space, bytes); }

 private:
  KvMemory estimate_least(int64_t tokens, int step_tokens, int64_t rollback_tokens) const;
  void require_room(int64_t tokens, int step_tokens, int64_t rollback_tokens) const;
  void drop_pages(std::span<const StepSequence> sequences);
  void ensure_scratch(const DecodeShape& decode, const PrefillShape& prefill);
  void ensure_step_scratch(std::span<const StepSequence> sequences);
  // A page that others share is copied before it is written.
  void own_last_page(SequenceId id);

  const RuntimeParts parts_;
  ExtraHotRows hot_rows_;
  RowCopies copies_;
};

}  // namespace fasa
