// Copies pages of a sequence out of a runtime and into one, and fetches rows that a source provides
// later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/api/sequences/runtime_parts.h"

namespace fasa {

class SequencePages {
 public:
  explicit SequencePages(const RuntimeParts& parts) : parts_(parts) {}

  // As in Runtime, outside steps.
  PageBytes bytes() const;
  void export_pages(SequenceId id, int64_t first, std::span<const PageSpans> pages);
  void import_pages(SequenceId id, int64_t tokens, std::span<const ConstPageSpans> pages);
  bool can_truncate_from(int64_t first_page, int64_t tokens) const;
  bool takes_row_sources() const;
  void set_row_source(SequenceId id, std::shared_ptr<RowSource> source, int64_t pages);
  bool fetch_rows(SequenceId id, size_t max_bytes);

  // Fetches rows of pages [first, end) that the source has.
  void fetch(KvSequence& sequence, int64_t first, int64_t end);
  // Fetches the rows that these sequences read before their sets are known.
  void fetch_for(std::span<const StepSequence> sequences);
  // Marks the step's sequences that lack rows.
  void describe(OpenStep& step) const;

 private:
  void copy_out(const KvSequence& sequence, int64_t first, std::span<const PageSpans> pages);
  void copy_in(const KvSequence& sequence, int64_t first, std::span<const ConstPageSpans> pages);
  // Waits for all of them together.
  void copy(std::span<const CopyRange> ranges, CopyKind kind);

  const RuntimeParts parts_;
};

}  // namespace fasa
