// Rebuilds a sequence's private memory from its rows: tail and protected rows.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows/row_codec.h"
#include "kernels/slice_pack.h"
#include "runtime/base/parallel.h"

namespace fasa::cpu {
namespace {

const std::byte* row_of(const CacheLayout& layout, const SequenceDesc& sequence, int layer,
                        int head, int position) {
  return sequence.row_blocks[position / kPageTokens] +
         layout.row_offset(layer, head, position % kPageTokens);
}

// Returns the number of rows read.
int restore_tail(const StepParams& step, const SequenceDesc& sequence, int layer, int head) {
  const CacheLayout& layout = step.layout;
  if (layout.slice.dims == 0 || sequence.tail == nullptr) return 0;
  const SliceFormat format = layout.slice.tail();
  std::byte* tail = sequence.tail + layout.tail_offset(layer, head);
  const SliceFormat value_format = layout.values.tail();
  std::byte* values = sequence.tail + layout.value_tail_offset(layer, head);
  std::memset(tail, 0, static_cast<size_t>(format.page_bytes()));
  std::memset(values, 0, static_cast<size_t>(value_format.page_bytes()));
  if (sequence.start == 0) return 0;
  const int16_t* dims = step.slice_dims + layout.head_index(layer, head) * layout.slice.dims;
  const int begin = (sequence.start - 1) / kPageTokens * kPageTokens;
  for (int position = begin; position < sequence.start; ++position) {
    const std::byte* row = row_of(layout, sequence, layer, head, position);
    const RowElements key = row_key(layout.row, row);
    write_tail_token(format, dims, key.dtype, key.data, position - begin, tail);
    if (!layout.has_values()) continue;
    const RowElements value = row_value(layout.row, row);
    write_tail_token(value_format, nullptr, value.dtype, value.data, position - begin, values);
  }
  return sequence.start - begin;
}

int restore_protected_rows(const CacheLayout& layout, const SequenceDesc& sequence, int layer,
                           int head) {
  if (sequence.protected_rows == nullptr) return 0;
  int rows = 0;
  const auto copy = [&](int position) {
    std::memcpy(sequence.protected_rows +
                    layout.protected_offset(layer, head, layout.protected_slot(position)),
                row_of(layout, sequence, layer, head, position),
                static_cast<size_t>(layout.row.bytes()));
    ++rows;
  };
  const int sinks = std::min(layout.sinks, sequence.start);
  for (int position = 0; position < sinks; ++position) copy(position);
  for (int position = std::max(sinks, sequence.start - layout.recent); position < sequence.start;
       ++position) {
    copy(position);
  }
  return rows;
}

}  // namespace

template <>
KernelWork run(const RestoreParams& params) {
  const CacheLayout& layout = params.step.layout;
  const int heads = static_cast<int>(layout.heads());
  std::atomic<uint64_t> rows{0};
  std::atomic<uint64_t> over_link{0};
  parallel_for(0, params.step.count * heads, [&](int task) {
    const SequenceDesc& sequence = params.step.sequences[task / heads];
    const int layer = task % heads / layout.kv_heads;
    const int head = task % layout.kv_heads;
    const int read = restore_tail(params.step, sequence, layer, head) +
                     restore_protected_rows(layout, sequence, layer, head);
    rows += static_cast<uint64_t>(read);
    if (sequence.access == RowAccess::kOverLink) over_link += static_cast<uint64_t>(read);
  });
  const auto row_bytes = static_cast<uint64_t>(layout.row.bytes());
  KernelWork work;
  work.device_bytes = rows * row_bytes;
  work.h2d_bytes = over_link * row_bytes;
  return work;
}

}  // namespace fasa::cpu
