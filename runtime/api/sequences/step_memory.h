// Allocates the memory that sequences and steps need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/api/sequences/decode_rounds.h"
#include "runtime/api/sequences/extra_hot_rows.h"
#include "runtime/api/sequences/memory_guard.h"
#include "runtime/api/sequences/step_streams.h"
#include "scheduler/prefetch/prefetch_control.h"

namespace fasa {

class LeftoversScope {
 public:
  explicit LeftoversScope(bool& flag) : flag_(flag), before_(flag) { flag_ = true; }
  LeftoversScope(const LeftoversScope&) = delete;  // the flag has one owner
  LeftoversScope& operator=(const LeftoversScope&) = delete;
  ~LeftoversScope() { flag_ = before_; }

 private:
  bool& flag_;
  const bool before_;
};

class StepMemory {
 public:
  // `hot_rows`: none if the config sets their number. All arguments outlive it.
  StepMemory(StepStreams& streams, PrefetchControl& prefetch, std::optional<int> hot_rows)
      : streams_(streams),
        engine_(streams.engine()),
        sequences_(streams.sequences()),
        prefetch_(prefetch),
        hot_rows_(streams, prefetch, hot_rows) {}

  // As in Runtime, outside steps.
  KvMemory estimate(int64_t tokens, int step_tokens, int64_t rollback_tokens) const;
  uint64_t min_device_bytes(int64_t tokens, int step_tokens) const {
    return hot_rows_.min_bytes(tokens, step_tokens);
  }
  void reserve(KvSequence& sequence, int64_t tokens, int step_tokens);
  // Allocates all memory of a step, and says how its attention is split. Throws BudgetError; the
  // guard restores the state before.
  DecodeRounds prepare(std::span<const StepPart> sequences, MemoryGuard& guard);
  // The same for a chunk of a prompt, which needs no scratch.
  void prepare_chunk(const StepPart& chunk, MemoryGuard& guard);
  // Loads the rows that these sequences read before their sets are known.
  void load_for(std::span<const StepPart> sequences);
  // For what a sequence remembers beside its pages. Throws BudgetError.
  void reserve_memories(KvSequence& sequence);
  // Device copies of the pages that the part begins, from memory that is left.
  void lend_copies(const StepPart& part);
  // Allocates what nothing is given up for.
  template <typename Allocate>
  void take_leftovers(const Allocate& allocate) {
    const LeftoversScope leftovers(takes_leftovers_);
    allocate();
  }

  // Implements MemoryReclaimer: gives up long waves of prefills, extra hot rows, then lent copies.
  bool reclaim(MemorySpace space, size_t bytes);
  bool reclaim_copies(MemorySpace space, size_t bytes);
  // True during calls that use free memory only: nothing may be given up for them.
  bool takes_leftovers() const { return takes_leftovers_; }

 private:
  KvMemory estimate_least(int64_t tokens, int step_tokens, int64_t rollback_tokens) const;
  void require_room(int64_t tokens, int step_tokens, int64_t rollback_tokens) const;
  void drop_pages(std::span<const StepPart> sequences);
  void wait_for_copies(const KvSequence& sequence);
  // Decides how rows are reached at that length, before any memory is allocated for it.
  void choose_access(KvSequence& sequence, int64_t tokens);
  void ensure_scratch(const Capacities& capacities);
  DecodeRounds ensure_step_scratch(std::span<const StepPart> sequences);
  // Copies the last page before it is written, if other sequences share it.
  void own_last_page(KvSequence& sequence);
  void lend(std::span<const StepPart> sequences);
  void describe_again();

  StepStreams& streams_;
  StepEngine& engine_;
  SequenceTable& sequences_;
  PrefetchControl& prefetch_;
  ExtraHotRows hot_rows_;
  bool takes_leftovers_ = false;
};

}  // namespace fasa
