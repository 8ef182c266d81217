// Chooses the number of hot rows for placement.hot_rows = auto, in two parts: hot rows that fit
// beside the reserved tokens; then extra ones, up to worthwhile_sets(), from memory that is still
// free after the step's allocations. The extra ones are freed before any allocation fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/api/sequences/step_streams.h"
#include "scheduler/prefetch/prefetch_control.h"

namespace fasa {

class ExtraHotRows {
 public:
  // `wanted`: hot rows per sequence at most; none if the config sets their number. The others
  // outlive it.
  ExtraHotRows(StepStreams& streams, PrefetchControl& prefetch, std::optional<int> wanted)
      : streams_(streams),
        engine_(streams.engine()),
        sequences_(streams.sequences()),
        prefetch_(prefetch),
        wanted_(wanted) {}

  struct Load {
    int count = 1;      // sequences
    uint64_t held = 0;  // device memory that they have
  };
  // Chooses as many hot rows as fit beside sequences of `tokens` tokens, while no sequence has any.
  // `may_grow`: the length is unknown, so hot rows take at most half of the free memory.
  void fit(int64_t tokens, int step_tokens, const Load& load, bool may_grow);
  // Device memory of a sequence with as few hot rows as fit() may choose.
  uint64_t min_bytes(int64_t tokens, int step_tokens) const;
  // Call it last when a step allocates memory: it cannot fail for lack of memory.
  void widen(std::span<const StepPart> sequences);
  // Frees extra hot rows, if that leaves `bytes` bytes free. Waits for all work; the caller
  // describes an open step's sequences again.
  bool reclaim(MemorySpace space, size_t bytes);

 private:
  uint64_t needed_with(int hot_rows, int64_t tokens, int step_tokens) const;
  void set(int hot_rows);
  HotRows* widest() const;

  StepStreams& streams_;
  StepEngine& engine_;
  SequenceTable& sequences_;
  PrefetchControl& prefetch_;
  const std::optional<int> wanted_;
};

}  // namespace fasa
