#include "runtime/api/memory_estimate.h"

#include <algorithm>
#include <bit>

#include "scheduler/cache/linear_state.h"
#include "scheduler/cache/rollback_window.h"

namespace fasa {
namespace {

int32_t visible_tokens(const LayerSettings& layer, int64_t context) {
  return static_cast<int32_t>(layer.window > 0 ? std::min<int64_t>(context, layer.window)
                                               : context);
}

// Snapshots are taken as far as the host's memory allows.
void add_states(const LinearShape& shape, int64_t tokens, int64_t rollback_tokens,
                KvMemory& memory) {
  const LinearLayout layout(shape);
  memory.device_states = static_cast<uint64_t>(layout.bytes());
  if (rollback_tokens == 0) return;
  const int64_t cuts = tokens / LinearState::kInterval * shape.layers * layout.cut_bytes();
  const auto turns = static_cast<int64_t>(LinearState::kTurns) * layout.bytes();
  memory.host_states = static_cast<uint64_t>(cuts + turns);
}

void add_predictions(const StepSettings& settings, int64_t context, PredictionScratch predictions,
                     DecodeShape& shape) {
  shape.predictions = true;
  if (!settings.prefetches(shape.hot_rows)) return;
  const bool sets = predictions.writes_sets;
  for (const LayerSettings& layer : settings.layers) {
    if (layer.dense) continue;
    const TokenBudget budget = sets ? layer.prediction_budget() : layer.budget;
    const int32_t tokens = budget.of(visible_tokens(layer, context), settings.budget_floor());
    shape.prediction_capacity =
        std::max(shape.prediction_capacity, sets ? tokens : std::min(tokens, kMaxRunnersUp));
  }
  // Lists of runners-up last from step to step.
  shape.prediction_buffers = sets ? predictions.max_depth + 1 : settings.layer_count();
}

}  // namespace

DecodeShape decode_shape(const StepSettings& settings, int64_t context, int count, RowAccess access,
                         int hot_rows, PredictionScratch predictions) {
  const bool local = access == RowAccess::kLocal;
  DecodeShape shape{.count = count, .access = access, .hot_rows = local ? 0 : hot_rows};
  const bool selects = !local || !settings.selects_all(context);
  for (int i = 0; i < settings.layer_count(); ++i) {
    const LayerSettings& layer = settings.layer(i);
    const int32_t visible = visible_tokens(layer, context);
    if (layer.in_window_rows) {
      shape.window_tokens =
          std::max(shape.window_tokens, StepScratch::dense_tokens(settings, visible, access));
      continue;
    }
    const int32_t budget = settings.selected_tokens(i, visible);
    // With local rows, a layer attends to all tokens while the context is no longer than
    // its set. The scratch for that is taken up front, so it covers longer contexts too.
    if (layer.dense || local) {
      const int dense = StepScratch::dense_tokens(settings, layer.dense ? context : budget, access);
      shape.dense_tokens = std::max(shape.dense_tokens, dense);
    }
    if (layer.dense || !selects) continue;
    shape.selected_capacity = std::max(shape.selected_capacity, budget);
    shape.low_bit_capacity = std::max(shape.low_bit_capacity, settings.low_bit_tokens(i, visible));
    shape.low_bit_blocks =
        std::max(shape.low_bit_blocks, low_bit_blocks(settings.low_bit_pages(i, visible)));
  }
  if (predictions.max_depth > 0 && !local) add_predictions(settings, context, predictions, shape);
  return shape;
}

PrefillShape prefill_shape(int64_t start, int tokens, RowAccess access) {
  if (access == RowAccess::kLocal) return {};
  return {.pages = write_back_pages_of(start, tokens),
          .tokens = tokens,
          .past_pages = static_cast<int>(start / kPageTokens)};
}

std::pair<DecodeShape, PrefillShape> reserved_shapes(const StepSettings& settings, int64_t tokens,
                                                     int step_tokens, RowAccess access,
                                                     int hot_rows, PredictionScratch predictions) {
  PrefillShape prefill;
  const auto most = static_cast<int>(std::min<int64_t>(step_tokens, tokens));
  if (step_tokens > 1 && most > 0 && access == RowAccess::kOverLink) {
    // Chunks may begin and end anywhere.
    prefill = {.pages = std::min(pages_of(most) + 1, pages_of(tokens)),
               .tokens = most,
               .past_pages = static_cast<int>((tokens - 1) / kPageTokens)};
  }
  return {decode_shape(settings, tokens, 1, access, hot_rows, predictions), prefill};
}

// At most half of the free memory is taken: other allocations would have to wait until extra hot
// rows are given up.
int extra_hot_rows(const StepSettings& settings, int hot_rows, int64_t tokens,
                   uint64_t free_bytes) {
  constexpr int kMaxSets = 16;  // 32 find no more on the shipped trace
  const CacheLayout& layout = settings.layout;
  if (settings.device_copies || hot_rows == 0) return 0;
  if (settings.access_of(tokens, hot_rows) == RowAccess::kLocal) return 0;
  const int64_t set =
      decode_shape(settings, tokens, 1, RowAccess::kOverLink, hot_rows).selected_capacity;
  const auto slot_bytes =
      static_cast<uint64_t>(layout.hot_bytes(1) + layout.heads() * 2 * int64_t{sizeof(int32_t)});
  const uint64_t fits = free_bytes / 2 / slot_bytes;
  const auto wanted = static_cast<uint64_t>(std::min(kMaxSets * set, tokens));
  const auto slots = static_cast<int>(std::min(wanted, fits));
  return slots >= 2 * hot_rows ? slots : 0;
}

KvMemory estimate_memory(const StepSettings& settings, int hot_rows, int64_t tokens,
                         int step_tokens, PredictionScratch predictions, int64_t rollback_tokens) {
  const CacheLayout& layout = settings.layout;
  const auto bytes = [](int64_t count) { return static_cast<uint64_t>(count); };
  const int64_t kept = max_pages(settings, tokens, step_tokens, rollback_tokens);
  const int64_t row_pages = settings.has_window_rows() ? pages_of(tokens) : kept;
  const int64_t slice_pages = std::min(row_pages, tokens / kPageTokens);
  const RowAccess access = settings.access_of(tokens, hot_rows);
  const bool copied = access != settings.access();
  KvMemory memory;
  const uint64_t rows = bytes(row_pages * layout.row_block_bytes());
  (settings.rows_on_device ? memory.device_rows : memory.host_rows) = rows;
  if (copied) memory.device_rows = bytes(pages_of(tokens) * layout.row_block_bytes());
  memory.device_rows += bytes(kept * settings.window_rows.row_block_bytes());
  const bool drops = drops_coded_rows(settings, rollback_tokens);
  if (layout.slice.dims > 0 && (!copied || drops || !settings.selects_all(tokens))) {
    memory.device_slices = bytes(slice_pages * layout.slice_block_bytes() + layout.tail_bytes());
  }
  if (access == RowAccess::kOverLink) {
    memory.device_hot_rows = bytes(layout.hot_bytes(hot_rows) + layout.hot_table_bytes(hot_rows) +
                                   layout.protected_bytes());
  }
  const auto [decode, prefill] =
      reserved_shapes(settings, tokens, step_tokens, access, hot_rows, predictions);
  // Tables of page addresses grow in powers of two.
  const uint64_t table = std::bit_ceil(bytes(pages_of(tokens))) * sizeof(void*);
  const uint64_t tables = (2 + (settings.has_window_rows() ? 1 : 0) + (copied ? 1 : 0)) * table;
  memory.device_scratch = StepScratch::bytes_for(settings, decode, prefill) + tables;
  memory.host_tables = tables;
  if (settings.linear.layers > 0) add_states(settings.linear, tokens, rollback_tokens, memory);
  return memory;
}

}  // namespace fasa
