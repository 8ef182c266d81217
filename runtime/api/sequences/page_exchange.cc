#include "runtime/api/sequences/page_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "runtime/base/error.h"

namespace fasa {
namespace {

void require_size(const char* name, size_t bytes, size_t wanted) {
  if (bytes == wanted) return;
  throw UsageError(fmt::format("{} of a page in {} bytes; allowed: {}", name, bytes, wanted));
}

// Copies blocks on the host at once and lists those on the device.
void add_copy(std::vector<CopyRange>& copies, void* destination, const void* source, size_t bytes,
              bool on_device) {
  if (on_device) {
    copies.push_back({destination, source, bytes});
  } else {
    std::memcpy(destination, source, bytes);
  }
}

// Zeroes what a block of rows holds behind its first tokens: stale bytes.
void clear_behind(int64_t tokens, const CacheLayout& layout, std::span<std::byte> block) {
  const auto used = static_cast<size_t>(tokens * layout.row.bytes());
  const auto of_head = static_cast<size_t>(layout.row_head_bytes());
  for (size_t head = 0; head < block.size(); head += of_head) {
    std::memset(block.data() + head + used, 0, of_head - used);
  }
}

LinearState& require_linear(const char* call, const KvSequence& sequence) {
  if (sequence.linear() != nullptr) return *sequence.linear();
  throw UsageError(fmt::format("{}: allowed in models with layers of linear attention", call));
}

}  // namespace

PageExchange::PageExchange(StepStreams& streams, PrefetchControl& prefetch, StepMemory& memory,
                           StepDescriber& describer, const PromptChunks& chunks,
                           const RuntimeTraits& traits)
    : streams_(streams),
      engine_(streams.engine()),
      sequences_(streams.sequences()),
      prefetch_(prefetch),
      memory_(memory),
      describer_(describer),
      chunks_(chunks),
      traits_(traits) {}

void PageExchange::export_pages(SequenceId id, int64_t first, std::span<const PageSpans> pages) {
  KvSequence& sequence = chunks_.require_idle("export_pages", id);
  std::optional<MemoryGuard> guard;  // of the slices that a short sequence makes for it
  // Only the last page may be without slices.
  const bool has_slices = !pages.empty() && !pages.front().slices.empty();
  if (has_slices && !sequence.slices().coded() && sequence.length() > 0) {
    code_slices(sequence, guard.emplace(streams_, prefetch_));
  }
  const PageBytes& page_bytes = traits_.page;
  const int64_t total = pages_of(sequence.length());
  const int64_t end = first + std::ssize(pages);
  if (first < 0 || pages.empty() || end > total) {
    throw UsageError(fmt::format("export_pages of {} pages from page {}; the sequence has {}",
                                 pages.size(), first, total));
  }
  const int64_t last_tokens =
      std::min<int64_t>(kPageTokens, sequence.length() - (end - 1) * kPageTokens);
  for (int64_t page = first; page < end; ++page) {
    if (sequence.rows().blocks()[static_cast<size_t>(page)] == nullptr) {
      throw UsageError(
          fmt::format("export_pages of page {}, which was freed (set_rollback_tokens)", page));
    }
    const PageSpans& out = pages[static_cast<size_t>(page - first)];
    const bool full = page + 1 < end || last_tokens == kPageTokens;
    require_size("rows", out.rows.size(), page_bytes.rows);
    require_size("slices", out.slices.size(), full ? page_bytes.slices : 0);
  }
  sequence.rows().load(first, end);
  streams_.wait_for(sequence);  // the host reads rows
  sequence.require_usable();
  copy_out(sequence, first, pages);
  const std::span<std::byte> rows = pages.back().rows;
  const StepSettings& settings = engine_.settings();
  clear_behind(last_tokens, settings.layout, rows.first(rows.size() - page_bytes.window_rows));
  clear_behind(last_tokens, settings.window_rows, rows.last(page_bytes.window_rows));
  if (guard) guard->keep();
}

// Stored pages have slices, also those of a short sequence, which needs none.
void PageExchange::code_slices(KvSequence& sequence, MemoryGuard& guard) {
  guard.watch(sequence);
  streams_.settle();  // descriptors of a step are used
  sequence.require_usable();
  sequence.reserve_slices();
  DescriptorBuffer& slot = streams_.slots().front();
  slot.ensure(1);
  streams_.note_control_work(sequence);
  describer_.code(sequence, slot);
}

// Window rows that were given back are zeros.
void PageExchange::copy_out(const KvSequence& sequence, int64_t first,
                            std::span<const PageSpans> pages) {
  const PageBytes& page_bytes = traits_.page;
  const bool on_device = sequences_.store().tier().space == MemorySpace::kDevice;
  std::vector<CopyRange> copies;
  for (size_t i = 0; i < pages.size(); ++i) {
    const auto [rows, slices] = pages[i];
    const size_t at = static_cast<size_t>(first) + i;
    const auto window_rows = rows.last(page_bytes.window_rows);
    add_copy(copies, rows.data(), sequence.rows().blocks()[at], rows.size() - window_rows.size(),
             on_device);
    if (!window_rows.empty() && sequence.window_rows()->blocks()[at] != nullptr) {
      add_copy(copies, window_rows.data(), sequence.window_rows()->blocks()[at], window_rows.size(),
               true);
    } else {
      std::fill(window_rows.begin(), window_rows.end(), std::byte{0});
    }
    if (!slices.empty())
      add_copy(copies, slices.data(), sequence.slices().blocks()[at], slices.size(), true);
  }
  copy(copies, CopyKind::kDeviceToHost);
}

void PageExchange::import_pages(SequenceId id, int64_t tokens,
                                std::span<const ConstPageSpans> pages) {
  KvSequence& sequence = chunks_.require_idle("import_pages", id);
  const PageBytes& page_bytes = traits_.page;
  const int64_t length = sequence.length();
  if (length % kPageTokens != 0 || tokens < 1 || pages_of(tokens) != std::ssize(pages)) {
    throw UsageError(
        fmt::format("import_pages of {} tokens in {} pages after {} tokens; allowed: pages of {} "
                    "tokens, the last one with 1 or more, after whole pages",
                    tokens, pages.size(), length, kPageTokens));
  }
  const int64_t first = length / kPageTokens;
  int64_t first_window_page = 0;  // the one after the last page without window rows
  for (int64_t i = 0; i < std::ssize(pages); ++i) {
    const auto [rows, slices] = pages[static_cast<size_t>(i)];
    const bool comes_later = rows.empty() && first + i < sequence.rows().view().pending_pages;
    const bool without_window_rows =
        page_bytes.window_rows > 0 && rows.size() == page_bytes.rows - page_bytes.window_rows;
    if (without_window_rows) first_window_page = first + i + 1;
    if (!comes_later && !without_window_rows) require_size("rows", rows.size(), page_bytes.rows);
    require_size("slices", slices.size(), (i + 1) * kPageTokens <= tokens ? page_bytes.slices : 0);
  }
  MemoryGuard guard(streams_, prefetch_);
  guard.watch(sequence);
  streams_.wait_for(sequence);
  if (sequence.rows().outgrows_copies(length + tokens)) sequence.read_over_link();
  sequence.reserve(length + tokens, first_window_page);
  // The host writes into blocks that may have belonged to other sequences.
  streams_.wait(sequences_.take_fence());
  sequence.require_usable();
  streams_.require();
  copy_in(sequence, first, pages);
  sequence.add_pages(tokens);
  if (SequenceRows* const rows = sequence.window_rows()) rows->drop_until(first_window_page);
  sequence.invalidate();
  guard.keep();
}

void PageExchange::copy_in(const KvSequence& sequence, int64_t first,
                           std::span<const ConstPageSpans> pages) {
  const PageBytes& page_bytes = traits_.page;
  const size_t of_others = page_bytes.rows - page_bytes.window_rows;
  const bool on_device = sequences_.store().tier().space == MemorySpace::kDevice;
  std::vector<CopyRange> copies;
  for (size_t i = 0; i < pages.size(); ++i) {
    const auto [rows, slices] = pages[i];
    const size_t at = static_cast<size_t>(first) + i;
    if (!rows.empty()) {
      add_copy(copies, sequence.rows().blocks()[at], rows.data(), of_others, on_device);
    }
    if (rows.size() > of_others && sequence.window_rows()->blocks()[at] != nullptr) {
      add_copy(copies, sequence.window_rows()->blocks()[at], rows.data() + of_others,
               page_bytes.window_rows, true);
    }
    // A short sequence makes its slices later, from the rows.
    if (!slices.empty() && sequence.slices().blocks().size() > at)
      add_copy(copies, sequence.slices().blocks()[at], slices.data(), slices.size(), true);
  }
  copy(copies, CopyKind::kHostToDevice);
}

void PageExchange::copy(std::span<const CopyRange> ranges, CopyKind kind) {
  const StreamView control = engine_.control();
  engine_.device().copy_all(ranges, kind, control, tag_of(-1, Cause::kControl));
  engine_.device().synchronize(control);
}

// --- contents that come later ---

void PageExchange::attach_pages(SequenceId id, std::shared_ptr<PendingPages> pending,
                                int64_t pages) {
  streams_.require_no_step("attach_pages");
  KvSequence& sequence = sequences_.find_usable(id);
  if (!traits_.loads_on_demand) {
    throw UsageError(
        "attach_pages: allowed on the cpu device with the selections fasa and full, in models "
        "whose layers have no window or all have one");
  }
  if (sequence.rows().view().pending != nullptr || pages < 0) {
    throw UsageError("attach_pages: the sequence has such pages already, or pages are below 0");
  }
  if (pending != nullptr) sequence.rows().attach(std::move(pending), pages);
}

bool PageExchange::load_more(SequenceId id, size_t max_bytes) {
  streams_.require_no_step("load_more");
  return sequences_.find_usable(id).rows().load_more(max_bytes);
}

// --- states ---

std::vector<StatePoint> PageExchange::states(SequenceId id) const {
  const LinearState* const state = sequences_.find(id).linear();
  return state != nullptr ? state->points() : std::vector<StatePoint>();
}

void PageExchange::export_state(SequenceId id, const StatePoint& point, size_t offset,
                                std::span<std::byte> bytes) {
  const KvSequence& sequence = chunks_.require_idle("export_state", id);
  streams_.wait_for(sequence);  // the host reads snapshots
  sequence.require_usable();
  require_linear("export_state", sequence)
      .export_state(point, offset, bytes, streams_.for_memories(sequence).view());
}

void PageExchange::import_state(SequenceId id, const StatePoint& point, size_t offset,
                                std::span<const std::byte> bytes) {
  KvSequence& sequence = chunks_.require_idle("import_state", id);
  LinearState& state = require_linear("import_state", sequence);
  MemoryGuard guard(streams_, prefetch_);
  guard.watch(sequence);
  memory_.reserve_memories(sequence);
  state.import_state(sequence.length(), point, offset, bytes,
                     streams_.for_memories(sequence).view());
  guard.keep();
}

}  // namespace fasa
