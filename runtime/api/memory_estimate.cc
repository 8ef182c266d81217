#include "runtime/api/memory_estimate.h"

#include <algorithm>
#include <bit>

#include "scheduler/cache/linear_state.h"
#include "scheduler/plan/head_groups.h"
#include "scheduler/step/step_scratch.h"

namespace fasa {
namespace {

// Snapshots are taken as far as the host's memory allows.
void add_states(const StepSettings& settings, int64_t tokens, int64_t rollback_tokens,
                KvMemory& memory) {
  const LinearLayout layout(settings.linear);
  memory.device_states = static_cast<uint64_t>(layout.bytes());
  if (rollback_tokens == 0) return;
  const int64_t cuts = tokens / settings.snapshots.interval * layout.copied_bytes(0);
  const int64_t turns = settings.snapshots.turns * layout.bytes();
  memory.host_states = static_cast<uint64_t>(cuts + turns);
}

}  // namespace

// At most half of the free memory is taken: other allocations would have to wait until extra hot
// rows are given up.
int extra_hot_rows(const StepSettings& settings, int hot_rows, int64_t tokens,
                   uint64_t free_bytes) {
  const CacheLayout& layout = settings.layout;
  if (settings.rows == RowTier::kMirrored || hot_rows == 0) return 0;
  if (settings.access_of(tokens, hot_rows) == RowAccess::kLocal) return 0;
  const auto slot_bytes = static_cast<uint64_t>(layout.hot_bytes(1) +
                                                layout.hot_heads() * 2 * int64_t{sizeof(int32_t)});
  const uint64_t fits = free_bytes / 2 / slot_bytes;
  const auto wanted = static_cast<uint64_t>(
      std::min(int64_t{worthwhile_sets(settings)} * largest_set(settings, tokens), tokens));
  const auto slots = static_cast<int>(std::min(wanted, fits));
  return slots >= 2 * hot_rows ? slots : 0;
}

KvMemory estimate_memory(const StepSettings& settings, int hot_rows, int64_t tokens,
                         int step_tokens, PredictionScratch predictions, int64_t rollback_tokens) {
  const CacheLayout& layout = settings.layout;
  const auto bytes = [](int64_t count) { return static_cast<uint64_t>(count); };
  if (rollback_tokens < 0) rollback_tokens = settings.rollback_tokens;
  const Retention retention = settings.group().retention;
  const int64_t row_pages = retention.max_pages(tokens, step_tokens, rollback_tokens);
  const int64_t slice_pages = std::min(row_pages, tokens / kPageTokens);
  const RowAccess access = settings.access_of(tokens, hot_rows);
  const bool copied = access != settings.access();
  KvMemory memory;
  memory.rows_in(traits_of(settings.rows).space) = bytes(row_pages * layout.row_block_bytes());
  if (copied) memory.device_rows = bytes(pages_of(tokens) * layout.row_block_bytes());
  if (settings.has_window_rows()) {
    const LayerGroup windows = settings.window_group();
    memory.device_rows += bytes(windows.retention.max_pages(tokens, step_tokens, rollback_tokens) *
                                windows.layout.row_block_bytes());
  }
  const bool drops = retention.frees(rollback_tokens);
  if (layout.slice.dims > 0 && (!copied || drops || !settings.selects_all(tokens))) {
    memory.device_slices = bytes(slice_pages * layout.slice_block_bytes() + layout.tail_bytes());
  }
  if (access == RowAccess::kOverLink) {
    memory.device_hot_rows = bytes(layout.hot_bytes(hot_rows) + layout.hot_table_bytes(hot_rows) +
                                   layout.protected_bytes());
  }
  // Tables of page addresses grow in powers of two.
  const uint64_t table = std::bit_ceil(bytes(pages_of(tokens))) * sizeof(void*);
  const uint64_t tables = (2 + (settings.has_window_rows() ? 1 : 0) + (copied ? 1 : 0)) * table;
  const Capacities capacities = capacities_for(settings, {.context = tokens,
                                                          .access = access,
                                                          .hot_rows = hot_rows,
                                                          .predictions = predictions,
                                                          .step_tokens = step_tokens});
  memory.device_scratch = scratch_bytes(settings, capacities) + tables;
  memory.host_tables = tables;
  if (settings.linear.layers > 0) add_states(settings, tokens, rollback_tokens, memory);
  return memory;
}

}  // namespace fasa
