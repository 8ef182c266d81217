#include "runtime/api/sequences/sequence_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/api/sequences/memory_guard.h"
#include "runtime/base/error.h"
#include "scheduler/cache/rollback_window.h"

namespace fasa {
namespace {

void require_size(const char* name, size_t bytes, size_t wanted) {
  if (bytes == wanted) return;
  throw UsageError(fmt::format("{} of a page in {} bytes; allowed: {}", name, bytes, wanted));
}

}  // namespace

PageBytes SequencePages::bytes() const {
  const StepSettings& settings = parts_.settings;
  const auto bytes = [](int64_t count) { return static_cast<size_t>(count); };
  const int64_t window_rows = settings.window_rows.row_block_bytes();
  return {
      .rows = bytes(settings.layout.row_block_bytes() + window_rows),
      .window_rows = bytes(window_rows),
      .slices = bytes(settings.layout.slice.dims > 0 ? settings.layout.slice_block_bytes() : 0)};
}

bool SequencePages::can_truncate_from(int64_t first_page, int64_t tokens) const {
  return fasa::can_truncate_from(parts_.settings, first_page, tokens);
}

void SequencePages::save(SequenceId id, int64_t page, std::span<std::byte> rows,
                         std::span<std::byte> slices) {
  KvSequence& sequence = parts_.sequences.find_usable(id);
  const CacheLayout& layout = parts_.settings.layout;
  const PageBytes page_bytes = bytes();
  if (page < 0 || page >= pages_of(sequence.length())) {
    throw UsageError(fmt::format("save_page of page {}; the sequence has {}", page,
                                 pages_of(sequence.length())));
  }
  const auto at = static_cast<size_t>(page);
  if (sequence.row_blocks()[at] == nullptr) {
    throw UsageError(
        fmt::format("save_page of page {}, which was freed (set_rollback_tokens)", page));
  }
  const int64_t tokens = std::min<int64_t>(kPageTokens, sequence.length() - page * kPageTokens);
  require_size("rows", rows.size(), page_bytes.rows);
  require_size("slices", slices.size(), tokens == kPageTokens ? page_bytes.slices : 0);
  fetch(sequence, page, page + 1);
  parts_.streams.drain();
  parts_.sequences.find_usable(id);
  copy_out(rows.first(page_bytes.rows - page_bytes.window_rows), sequence.row_blocks()[at],
           parts_.settings.rows_on_device);
  if (page_bytes.window_rows > 0)
    copy_window_rows_out(rows.last(page_bytes.window_rows), sequence.window_row_blocks()[at]);
  if (!slices.empty()) copy_out(slices, sequence.slice_blocks()[at], true);
  // The rest of the block holds stale bytes.
  const auto used = static_cast<size_t>(tokens * layout.row.bytes());
  const auto of_head = static_cast<size_t>(layout.row_head_bytes());
  for (size_t head = 0; head < rows.size(); head += of_head) {
    std::memset(rows.data() + head + used, 0, of_head - used);
  }
}

void SequencePages::load(SequenceId id, int tokens, std::span<const std::byte> rows,
                         std::span<const std::byte> slices) {
  KvSequence& sequence = parts_.sequences.find_usable(id);
  const PageBytes page_bytes = bytes();
  const int64_t length = sequence.length();
  if (length % kPageTokens != 0 || tokens < 1 || tokens > kPageTokens) {
    throw UsageError(
        fmt::format("load_page of {} tokens after {}; allowed: 1 to {} after whole pages", tokens,
                    length, kPageTokens));
  }
  const int64_t page = length / kPageTokens;
  const size_t of_others = page_bytes.rows - page_bytes.window_rows;
  const bool comes_later = rows.empty() && page < sequence.later_rows().pages;
  const bool without_window_rows = page_bytes.window_rows > 0 && rows.size() == of_others;
  if (!comes_later && !without_window_rows) require_size("rows", rows.size(), page_bytes.rows);
  require_size("slices", slices.size(), tokens == kPageTokens ? page_bytes.slices : 0);
  MemoryGuard guard(parts_);
  guard.watch(sequence);
  parts_.streams.drain();  // the blocks may have belonged to other sequences
  parts_.sequences.find_usable(id);
  parts_.streams.require();
  if (sequence.outgrows_copies(length + tokens)) sequence.read_over_link();
  sequence.reserve(length + tokens);
  const auto at = static_cast<size_t>(page);
  if (!rows.empty()) {
    copy_in(sequence.row_blocks()[at], rows.first(of_others), parts_.settings.rows_on_device);
  }
  if (!rows.empty() && page_bytes.window_rows > 0 && !without_window_rows) {
    copy_in(sequence.window_row_blocks()[at], rows.last(page_bytes.window_rows), true);
  }
  // A short sequence makes its slices later, from the rows.
  if (!slices.empty() && sequence.slice_blocks().size() > at) {
    copy_in(sequence.slice_blocks()[at], slices, true);
  }
  sequence.commit(tokens);
  if (without_window_rows) sequence.drop_window_rows(page + 1);
  sequence.invalidate();
  guard.keep();
}

void SequencePages::copy_window_rows_out(std::span<std::byte> out, const std::byte* block) {
  if (block != nullptr) return copy_out(out, block, true);
  std::fill(out.begin(), out.end(), std::byte{0});
}

void SequencePages::copy_out(std::span<std::byte> out, const std::byte* block, bool on_device) {
  if (!on_device) {
    std::memcpy(out.data(), block, out.size());
    return;
  }
  parts_.device.copy(out.data(), block, out.size(), CopyKind::kDeviceToHost,
                     parts_.streams.control(), tag_of(-1, Cause::kControl));
  parts_.device.synchronize(parts_.streams.control());
}

void SequencePages::copy_in(std::byte* block, std::span<const std::byte> in, bool on_device) {
  if (!on_device) {
    std::memcpy(block, in.data(), in.size());
    return;
  }
  parts_.device.copy(block, in.data(), in.size(), CopyKind::kHostToDevice, parts_.streams.control(),
                     tag_of(-1, Cause::kControl));
  parts_.device.synchronize(parts_.streams.control());
}

// --- rows that a source provides later ---

bool SequencePages::takes_row_sources() const {
  return parts_.device.kind() == DeviceKind::kCpu && parts_.settings.rows_on_device &&
         !parts_.settings.has_window_rows() && parts_.settings.selection == nullptr &&
         !parts_.settings.selection_evicts && !parts_.settings.selected_per_query_head;
}

void SequencePages::set_row_source(SequenceId id, std::shared_ptr<RowSource> source,
                                   int64_t pages) {
  KvSequence& sequence = parts_.sequences.find_usable(id);
  if (!takes_row_sources()) {
    throw UsageError(
        "set_row_source: allowed on the cpu device with the selections fasa and full, in models "
        "whose layers have no window or all have one");
  }
  if (sequence.later_rows().source != nullptr || pages < 0) {
    throw UsageError("set_row_source: the sequence has a source already, or pages are below 0");
  }
  if (source != nullptr) sequence.set_later_rows({std::move(source), pages});
}

bool SequencePages::fetch_rows(SequenceId id, size_t max_bytes) {
  KvSequence& sequence = parts_.sequences.find_usable(id);
  RowSource* const source = sequence.later_rows().source.get();
  if (source == nullptr) return true;
  if (!source->fetch_next(sequence.later_rows().pages, max_bytes, sequence.row_blocks())) {
    return false;
  }
  sequence.set_later_rows({});
  return true;
}

void SequencePages::fetch(KvSequence& sequence, int64_t first, int64_t end) {
  RowSource* const source = sequence.later_rows().source.get();
  if (source == nullptr) return;
  std::vector<RowBytes> wanted;
  for (int64_t page = first; page < std::min(end, sequence.later_rows().pages); ++page) {
    wanted.push_back({page, 0, parts_.settings.layout.row_block_bytes()});
  }
  source->fetch(wanted, sequence.row_blocks());
}

// Prefill and append-only sequences have no sets to name the rows they read. A tail is made from
// the last page.
void SequencePages::fetch_for(std::span<const StepSequence> sequences) {
  for (const StepSequence& part : sequences) {
    KvSequence& sequence = parts_.sequences.find(part.sequence);
    if (sequence.later_rows().source == nullptr) continue;
    const int64_t pages = pages_of(sequence.length());
    fetch(sequence, pages - 1, pages);
    if (part.mode == StepMode::kDecode) continue;
    while (!fetch_rows(part.sequence, SIZE_MAX)) continue;
  }
}

void SequencePages::describe(OpenStep& step) const {
  const auto lacks = [&](const StepSequence& part) {
    return parts_.sequences.find(part.sequence).later_rows().source != nullptr;
  };
  if (std::none_of(step.sequences.begin(), step.sequences.end(), lacks)) return;
  for (const StepSequence& part : step.sequences) {
    const KvSequence& sequence = parts_.sequences.find(part.sequence);
    step.tables.sources.push_back(
        {sequence.later_rows().source.get(), sequence.later_rows().pages});
  }
}

}  // namespace fasa
