// Estimates the memory of a paged runtime from its settings.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "runtime/api/pages/paged_runtime.h"
#include "runtime/api/pages/paged_settings.h"
#include "runtime/base/error.h"
#include "scheduler/step/descriptor_buffer.h"
#include "scheduler/step/step_scratch.h"

namespace fasa {
namespace {

uint64_t bytes(int64_t count) { return static_cast<uint64_t>(count); }

KvMemory page_bytes(const StepSettings& settings, const PagedShape& shape) {
  const CacheLayout& layout = settings.layout;
  const int64_t parts = shape.page_size / kPageTokens;
  KvMemory memory;
  memory.rows_in(traits_of(settings.rows).space) = bytes(parts * layout.row_block_bytes());
  if (layout.slice.dims > 0) memory.device_slices = bytes(parts * layout.slice_block_bytes());
  return memory;
}

// Largest numbers that occur at a time.
struct Counts {
  Counts(const PagedShape& shape, int64_t max_context, int step_tokens)
      : sequences(shape.max_sequences),
        blocks((max_context + kPageTokens - 1) / kPageTokens + shape.page_size / kPageTokens),
        runs(step_tokens / shape.page_size + 2 * sequences),
        groups(2 * sequences),
        run_blocks(runs * (shape.page_size / kPageTokens)) {}

  int64_t sequences;
  int64_t blocks;      // row blocks of a sequence
  int64_t runs;        // of an append, each inside one page
  int64_t groups;      // of runs; kernels see each as one sequence
  int64_t run_blocks;  // row blocks of all runs
};

// Addresses in device memory, and as many on the host. Arrays grow by doubling, and outgrown ones
// are kept.
uint64_t table_bytes(const Counts& counts) {
  const auto array = [](int64_t entries) {
    return 2 * std::bit_ceil(bytes(entries)) * sizeof(void*);
  };
  const uint64_t views = bytes(counts.sequences) * 2 * array(counts.blocks);
  return views + 4 * array(counts.run_blocks) + 2 * array(counts.sequences * counts.blocks);
}

uint64_t descriptor_bytes(const Counts& counts) {
  return 2 * DescriptorBuffer::kKinds * bytes(counts.groups + 2 * counts.sequences) *
         sizeof(SequenceDesc);
}

Capacities capacities_of(const StepSettings& settings, const Counts& counts, int64_t max_context,
                         int step_tokens) {
  Capacities capacities = capacities_for(settings, {.context = max_context,
                                                    .count = static_cast<int>(counts.sequences),
                                                    .access = settings.access(),
                                                    .hot_rows = settings.max_hot_rows});
  if (settings.access() == RowAccess::kOverLink) {
    capacities.prefill = {.pages = static_cast<int>(counts.run_blocks + counts.groups),
                          .tokens = step_tokens,
                          .past_pages = pages_of(max_context)};
  }
  return capacities;
}

// Bytes for sequences in flight (tails, hot rows, tables) and for a step's scratch.
KvMemory fixed_bytes(const StepSettings& settings, const PagedShape& shape, int64_t max_context,
                     int step_tokens) {
  const CacheLayout& layout = settings.layout;
  const Counts counts(shape, max_context, step_tokens);
  KvMemory memory;
  if (layout.slice.dims > 0) {
    // A page has one tail; a sequence that ends before the page's newest token needs another.
    memory.device_slices = bytes(2 * counts.sequences * layout.tail_bytes());
  }
  if (settings.access() == RowAccess::kOverLink) {
    memory.device_hot_rows =
        bytes(counts.sequences * (layout.hot_bytes(settings.max_hot_rows) +
                                  layout.hot_table_bytes(settings.max_hot_rows)));
  }
  memory.device_scratch =
      scratch_bytes(settings, capacities_of(settings, counts, max_context, step_tokens)) +
      table_bytes(counts) + descriptor_bytes(counts) +
      bytes(layout.heads() * layout.slice.dims) * sizeof(int16_t) +
      bytes(layout.layers) * sizeof(StepCounters);
  memory.host_tables = table_bytes(counts);
  return memory;
}

}  // namespace

PagedSizes PagedRuntime::sizes(const Device& device, const Config& config, const Geometry& geometry,
                               RowDType row_dtype, const PagedShape& shape, int64_t max_context,
                               int step_tokens) {
  if (max_context < 1 || max_context > INT32_MAX - kPageTokens || step_tokens < 1) {
    throw UsageError(
        fmt::format("sizes: max_context = {}, step_tokens = {}: allowed: 1 to {}, and 1 or more",
                    max_context, step_tokens, INT32_MAX - kPageTokens));
  }
  PagedShape one = shape;  // one sequence's pages: enough for the settings
  one.num_pages = shape.page_size > 0 ? (max_context + shape.page_size - 1) / shape.page_size : 1;
  const StepSettings settings = paged_settings(config, geometry, row_dtype, device.traits(), one);
  return {.page = page_bytes(settings, shape),
          .fixed = fixed_bytes(settings, shape, max_context, step_tokens)};
}

}  // namespace fasa
