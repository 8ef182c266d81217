// Copies pages of a sequence out of a runtime and into one, and loads contents that come later.
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
  void attach(SequenceId id, std::shared_ptr<PendingPages> pending, int64_t pages);

  // Loads the rows that these sequences read before their sets are known.
  void load_for(std::span<const StepSequence> sequences);

 private:
  void copy_out(const KvSequence& sequence, int64_t first, std::span<const PageSpans> pages);
  void copy_in(const KvSequence& sequence, int64_t first, std::span<const ConstPageSpans> pages);
  // Waits for all of them together.
  void copy(std::span<const CopyRange> ranges, CopyKind kind);

  const RuntimeParts parts_;
};

}  // namespace fasa
