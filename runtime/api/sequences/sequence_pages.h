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
  void save(SequenceId id, int64_t page, std::span<std::byte> rows, std::span<std::byte> slices);
  void load(SequenceId id, int tokens, std::span<const std::byte> rows,
            std::span<const std::byte> slices);
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
  void copy_out(std::span<std::byte> out, const std::byte* block, bool on_device);
  void copy_window_rows_out(std::span<std::byte> out, const std::byte* block);  // zeros for none
  void copy_in(std::byte* block, std::span<const std::byte> in, bool on_device);

  const RuntimeParts parts_;
};

}  // namespace fasa
