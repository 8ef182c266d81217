// Copies pages of a sequence out of a runtime and into one, and loads contents that come later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/api/sequences/step_streams.h"
#include "scheduler/prefetch/prefetch_control.h"

namespace fasa {

class SequencePages {
 public:
  // All arguments outlive it.
  SequencePages(StepStreams& streams, PrefetchControl& prefetch, const RuntimeTraits& traits)
      : streams_(streams),
        engine_(streams.engine()),
        sequences_(streams.sequences()),
        prefetch_(prefetch),
        traits_(traits) {}

  // As in Runtime, outside steps.
  void export_pages(SequenceId id, int64_t first, std::span<const PageSpans> pages);
  void import_pages(SequenceId id, int64_t tokens, std::span<const ConstPageSpans> pages);
  void attach(SequenceId id, std::shared_ptr<PendingPages> pending, int64_t pages);

  // Loads the rows that these sequences read before their sets are known.
  void load_for(std::span<const StepSequence> sequences);

 private:
  void copy_out(const KvSequence& sequence, int64_t first, std::span<const PageSpans> pages);
  void copy_in(const KvSequence& sequence, int64_t first, std::span<const ConstPageSpans> pages);
  // Waits for all of them together.
  void copy(std::span<const CopyRange> ranges, CopyKind kind);

  StepStreams& streams_;
  StepEngine& engine_;
  SequenceTable& sequences_;
  PrefetchControl& prefetch_;
  const RuntimeTraits& traits_;
};

}  // namespace fasa
