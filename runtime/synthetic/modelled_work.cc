#include "runtime/synthetic/modelled_work.h"

#include <algorithm>

#include "kernels/kernel_work.h"
#include "kernels/prefill_work.h"
#include "kernels/run_on_host.h"
#include "kernels/select_plan.h"

namespace fasa {
namespace {

template <typename Each>
void for_each_sequence(const StepParams& step, StepMode mode, const Each& each) {
  for (int i = 0; i < step.count; ++i) {
    if (step.sequences[i].mode == mode) each(i, step.sequences[i]);
  }
}

int64_t heads_of(const StepParams& step) { return step.layout.kv_heads; }

int64_t fetched_rows(const ResolveParams& params) {
  int64_t rows = 0;
  for (int i = 0; i < params.step.count * params.step.head_count(); ++i) {
    rows += params.fetch_counts[params.step.head_index(i)];
  }
  return rows;
}

uint64_t low_bit_pages_bytes(const AttendParams& params, const SequenceDesc& sequence,
                             int64_t head) {
  const int pages = params.low_bit_pages.counts[head];
  if (pages == 0) return 0;
  const CacheLayout& layout = params.step.layout;
  const int64_t first = int64_t{pages_of(sequence.end()) - pages} * kPageTokens;
  return value_pages_bytes(layout, first, sequence.end()) + page_scores_bytes(layout, pages);
}

// The entries of a tile-wise wave that this phase computes.
int64_t entries_of_phase(const AttendParams& params, int64_t head, int64_t entries) {
  if (params.phase == AttendPhase::kAllTiles) return entries;
  if (params.tile_ready == nullptr) {
    return params.phase == AttendPhase::kReadyTiles ? 0 : entries;
  }
  const int64_t tiles = (params.end - params.begin + kTileTokens - 1) / kTileTokens;
  int64_t wanted = 0;
  for (int64_t tile = 0; tile * kTileTokens < entries; ++tile) {
    const bool ready = params.tile_ready[head * tiles + tile] != 0;
    if (ready != (params.phase == AttendPhase::kReadyTiles)) continue;
    wanted += std::min<int64_t>(kTileTokens, entries - tile * kTileTokens);
  }
  return wanted;
}

}  // namespace

KernelWork modelled_work(const AppendParams& params) {
  const CacheLayout& layout = params.step.layout;
  uint64_t bytes = 0;
  for (int i = 0; i < params.step.count; ++i) {
    const SequenceDesc& sequence = params.step.sequences[i];
    const int sealed = sequence.end() / kPageTokens - sequence.start / kPageTokens;
    bytes +=
        append_bytes(layout, sequence.tokens) + static_cast<uint64_t>(sealed) * seal_bytes(layout);
  }
  return {.device_bytes = bytes * static_cast<uint64_t>(layout.kv_heads)};
}

KernelWork modelled_work(const WriteBackParams& params) {
  int64_t tokens = 0;
  for (int i = 0; i < params.step.count; ++i) tokens += params.step.sequences[i].tokens;
  KernelWork work;
  work.d2h_bytes = rows_bytes(params.step.layout, tokens * heads_of(params.step));
  return work;
}

KernelWork modelled_work(const RestoreParams& params) {
  const CacheLayout& layout = params.step.layout;
  int64_t rows = 0;
  int64_t over_link = 0;
  for (int i = 0; i < params.step.count; ++i) {
    const SequenceDesc& sequence = params.step.sequences[i];
    const int start = sequence.start;
    int64_t read = 0;
    if (start > 0 && layout.slice.dims > 0 && sequence.tail != nullptr)
      read += (start - 1) % kPageTokens + 1;
    const bool local = sequence.access == RowAccess::kLocal;
    if (!local) read += std::min(start, layout.protected_tokens());
    rows += read;
    if (!local) over_link += read;
  }
  return {.device_bytes = rows_bytes(layout, rows * layout.heads()),
          .h2d_bytes = rows_bytes(layout, over_link * layout.heads()),
          .d2h_bytes = 0};
}

KernelWork modelled_work(const SelectParams& params) {
  const CacheLayout& layout = params.step.layout;
  const SliceFormat format = layout.slice.prefix(params.score_dims);
  uint64_t bytes = 0;
  for_each_sequence(params.step, StepMode::kDecode, [&](int, const SequenceDesc& sequence) {
    const SelectPlan plan = plan_selection(params, sequence);
    if (plan.is_dense()) return;
    bytes += select_bytes(format, plan.first, plan.end);
    if (params.low_bit_pages.capacity > 0) bytes += page_scores_bytes(layout, plan.pages());
  });
  return {.device_bytes = bytes * static_cast<uint64_t>(params.step.head_count())};
}

// Resolving decides what is fetched, so it runs for real.
KernelWork modelled_work(const FetchParams& params) {
  KernelWork work = run_on_host(params.resolve);
  work.bytes_before_link = work.device_bytes;
  work.h2d_bytes = rows_bytes(params.resolve.step.layout, fetched_rows(params.resolve));
  return work;
}

KernelWork modelled_work(const GatherParams& params) {
  const int heads = params.count * params.layout.kv_heads;
  int64_t rows = 0;
  for (int head = params.first; head < heads; head += params.stride) {
    rows += params.fetch_counts[head];
  }
  KernelWork work;
  work.h2d_bytes = rows_bytes(params.layout, rows);
  return work;
}

KernelWork modelled_work(const AttendParams& params) {
  const CacheLayout& layout = params.step.layout;
  const bool last = params.last_wave && params.phase != AttendPhase::kReadyTiles;
  uint64_t bytes = 0;
  for_each_sequence(params.step, StepMode::kDecode, [&](int i, const SequenceDesc& sequence) {
    for (int64_t head = 0; head < params.step.head_count(); ++head) {
      const int64_t index = int64_t{i} * layout.kv_heads + params.step.first_head() + head;
      int64_t total = sequence.end();
      if (params.window > 0) total = std::min<int64_t>(total, params.window);
      if (params.selected_sizes != nullptr) total = params.selected_sizes[index];
      const int64_t entries =
          std::max<int64_t>(0, std::min<int64_t>(params.end, total) - params.begin);
      bytes += rows_bytes(layout, entries_of_phase(params, index, entries));
      if (params.low_bit.capacity > 0 && params.phase != AttendPhase::kRemainingTiles) {
        bytes += low_bit_bytes(layout, params.low_bit.sizes[index]);
      }
      if (params.low_bit_pages.capacity > 0 && params.phase != AttendPhase::kRemainingTiles) {
        bytes += low_bit_pages_bytes(params, sequence, index);
      }
    }
    const int64_t queries = int64_t{params.step.head_count()} * layout.gqa_group;
    if (last) bytes += output_bytes(layout, queries, params.out.dtype);
  });
  return {.device_bytes = bytes};
}

KernelWork modelled_work(const PrefillParams& params) { return prefill_work(params); }

}  // namespace fasa
