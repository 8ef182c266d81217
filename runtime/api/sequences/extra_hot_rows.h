// How many hot rows sequences have (placement.hot_rows = auto): as many as a sequence's promised
// tokens leave room for, and beyond those up to 16 sets of what is left when a step has all that it
// needs, given up before anybody is refused memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/api/sequences/runtime_parts.h"

namespace fasa {

class ExtraHotRows {
 public:
  // `wanted`: none where their number is not ours to choose.
  ExtraHotRows(const RuntimeParts& parts, std::optional<int> wanted)
      : parts_(parts), wanted_(wanted) {}

  // As many as `count` sequences of `tokens` tokens leave room for, while no sequence has any.
  // Where the length is not known (`may_grow`), they take no more than half of what is free.
  void fit(int64_t tokens, int step_tokens, int count, bool may_grow);
  // Last of all that a step takes memory for: nothing here can fail for memory.
  void widen(std::span<const StepSequence> sequences);
  // See MemoryReclaimer.
  bool reclaim(MemorySpace space, size_t bytes);

 private:
  uint64_t needed_with(int hot_rows, int64_t tokens, int step_tokens) const;
  void set(int hot_rows);
  KvSequence* widest() const;
  void renew();

  const RuntimeParts parts_;
  const std::optional<int> wanted_;
};

}  // namespace fasa
