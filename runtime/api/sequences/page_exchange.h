// Pages and states of sequences, out of a runtime and into one, and contents that come later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "offload/store/pending_pages.h"
#include "runtime/api/sequences/memory_guard.h"
#include "runtime/api/sequences/prompt_chunks.h"
#include "runtime/api/sequences/runtime_traits.h"

namespace fasa {

// A page outside of a runtime.
struct PageSpans {
  std::span<std::byte> rows, slices;
};
struct ConstPageSpans {
  std::span<const std::byte> rows, slices;
};

class PageExchange {
 public:
  // All arguments outlive it.
  PageExchange(StepStreams& streams, PrefetchControl& prefetch, StepMemory& memory,
               StepDescriber& describer, const PromptChunks& chunks, const RuntimeTraits& traits);

  // The states that the sequence has in layers with linear attention, by tokens.
  std::vector<StatePoint> states(SequenceId id) const;
  // Sequences as pages of kPageTokens tokens, for callers that store them elsewhere. Outside steps
  // only. Pages fit runtimes with the same geometry, settings, row dtype and slice dimensions.
  //
  // Copies pages first, first + 1, ... of the committed tokens, with the slices of full ones. Rows
  // beyond the last token and window rows that were given back are zero. Waits once. Throws
  // UsageError, BudgetError (a short sequence makes its slices first), DeviceError and errors of
  // PendingPages; then nothing has changed.
  void export_pages(SequenceId id, int64_t first, std::span<const PageSpans> pages);
  // Appends `tokens` tokens after whole pages, from pages with at least as many; with the slices of
  // those that they fill. Rows may be omitted from pages that attach_pages() named. Window rows
  // may be omitted from any page; those of all earlier pages are then given back. Waits once.
  // Throws UsageError, BudgetError; then nothing has changed.
  void import_pages(SequenceId id, int64_t tokens, std::span<const ConstPageSpans> pages);

  // With layers of linear attention pages are not all: a sequence also has a state. export_state()
  // copies bytes of one of states() from `offset` on, which wait like pages.
  // import_state() takes them, in order, after import_pages() of exactly the point's tokens; steps
  // need it. Throw UsageError, and import_state() BudgetError: nothing has changed.
  void export_state(SequenceId id, const StatePoint& point, size_t offset,
                    std::span<std::byte> bytes);
  void import_state(SequenceId id, const StatePoint& point, size_t offset,
                    std::span<const std::byte> bytes);

  // Rows of the first `pages` pages come from `pending` when a decode step selects them. Other
  // readers (prefill, read, export_pages, a fork's last page) load the rows they need first. The
  // last page of a sequence needs its rows from the start. The call that needs rows throws the
  // errors of `pending`; in a step that is attend(), and aborting the step undoes it. Throws
  // UsageError unless the runtime loads on demand (the cpu device, most settings).
  void attach_pages(SequenceId id, std::shared_ptr<PendingPages> pending, int64_t pages);
  // Loads about `max_bytes` of the missing rows. Returns true once no rows are missing.
  bool load_more(SequenceId id, size_t max_bytes);

 private:
  void code_slices(KvSequence& sequence, MemoryGuard& guard);
  void copy_out(const KvSequence& sequence, int64_t first, std::span<const PageSpans> pages);
  void copy_in(const KvSequence& sequence, int64_t first, std::span<const ConstPageSpans> pages);
  // Waits for all of them together.
  void copy(std::span<const CopyRange> ranges, CopyKind kind);

  StepStreams& streams_;
  StepEngine& engine_;
  SequenceTable& sequences_;
  PrefetchControl& prefetch_;
  StepMemory& memory_;
  StepDescriber& describer_;
  const PromptChunks& chunks_;
  const RuntimeTraits& traits_;
};

}  // namespace fasa
