#include "runtime/memory_prediction.h"

#include <algorithm>
#include <bit>

namespace fasa {

DecodeShape decode_shape(const StepSettings& settings, int64_t context, int count) {
  DecodeShape shape{.count = count, .set_capacity = 0, .dense_tokens = 0};
  for (const LayerSettings& layer : settings.layers) {
    const auto visible =
        static_cast<int32_t>(layer.window > 0 ? std::min<int64_t>(context, layer.window) : context);
    const int32_t budget = layer.budget.of(visible, settings.budget_floor());
    const bool all = layer.dense || (settings.rows_on_device && budget == visible);
    if (all) {
      shape.dense_tokens = std::max(shape.dense_tokens, static_cast<int>(context));
    }
    if (!layer.dense) shape.set_capacity = std::max(shape.set_capacity, budget);
  }
  return shape;
}

PrefillShape prefill_shape(const StepSettings& settings, int64_t start, int tokens) {
  if (settings.rows_on_device) return {};
  return {.pages = pages_of(tokens) + 1,
          .tokens = tokens,
          .past_pages = static_cast<int>(start / kPageTokens)};
}

std::pair<DecodeShape, PrefillShape> reserved_shapes(const StepSettings& settings, int64_t tokens,
                                                     int step_tokens) {
  const int64_t last_start = std::max<int64_t>(0, tokens - 1);  // chunks may end anywhere
  return {decode_shape(settings, tokens, 1),
          step_tokens > 1 ? prefill_shape(settings, last_start, step_tokens) : PrefillShape{}};
}

KvMemory predict_memory(const StepSettings& settings, int64_t tokens, int step_tokens) {
  const CacheLayout& layout = settings.layout;
  const auto bytes = [](int64_t count) { return static_cast<uint64_t>(count); };
  const int64_t row_pages = pages_of(tokens);
  KvMemory memory;
  const uint64_t rows = bytes(row_pages * layout.row_block_bytes());
  (settings.rows_on_device ? memory.device_rows : memory.host_rows) = rows;
  if (layout.slice.dims > 0) {
    memory.device_slices =
        bytes(tokens / kPageTokens * layout.slice_block_bytes() + layout.tail_bytes());
  }
  if (!settings.rows_on_device) {
    memory.device_hot_rows =
        bytes(layout.hot_bytes() + layout.hot_table_bytes() + layout.resident_bytes());
  }
  const auto [decode, prefill] = reserved_shapes(settings, tokens, step_tokens);
  // Two tables of page addresses, grown in powers of two.
  const uint64_t tables = 2 * std::bit_ceil(bytes(row_pages)) * sizeof(void*);
  memory.device_scratch = StepScratch::bytes_for(settings, decode, prefill) + tables;
  return memory;
}

}  // namespace fasa
