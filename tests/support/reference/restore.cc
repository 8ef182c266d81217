#include <cstring>

#include "tests/support/reference/kernels.h"
#include "tests/support/reference/row_codes.h"
#include "tests/support/reference/slices.h"

namespace fasa::reference {
namespace {

void restore_tail(const StepParams& step, const SequenceDesc& desc, int layer, int head) {
  const CacheLayout& layout = step.layout;
  if (layout.slice.dims == 0 || desc.tail == nullptr) return;
  const SliceFormat format = layout.slice.tail();
  std::byte* tail = desc.tail + layout.tail_offset(layer, head);
  const SliceFormat value_format = layout.values.tail();
  std::byte* values = desc.tail + layout.value_tail_offset(layer, head);
  std::memset(tail, 0, static_cast<size_t>(format.page_bytes()));
  std::memset(values, 0, static_cast<size_t>(value_format.page_bytes()));
  const int16_t* dims = step.slice_dims + layout.head_index(layer, head) * layout.slice.dims;
  for (int position = 0; position < desc.start; ++position) {
    if (position / kPageTokens != (desc.start - 1) / kPageTokens) continue;
    const int slot = position % kPageTokens;
    const std::byte* row =
        desc.row_blocks[position / kPageTokens] + layout.row_offset(layer, head, slot);
    reference::write_tail_token(format, dims, DType::kF32, row_key(layout.row, row).data(), slot,
                                tail);
    reference::write_tail_token(value_format, nullptr, DType::kF32,
                                row_value(layout.row, row).data(), slot, values);
  }
}

void restore_head(const StepParams& step, const SequenceDesc& desc, int layer, int head) {
  const CacheLayout& layout = step.layout;
  restore_tail(step, desc, layer, head);
  for (int position = 0; position < desc.start && desc.protected_rows != nullptr; ++position) {
    if (position >= layout.sinks && position < desc.start - layout.recent) continue;
    std::memcpy(
        desc.protected_rows + layout.protected_offset(layer, head, layout.protected_slot(position)),
        desc.row_blocks[position / kPageTokens] +
            layout.row_offset(layer, head, position % kPageTokens),
        static_cast<size_t>(layout.row.bytes()));
  }
}

}  // namespace

void restore(const RestoreParams& params) {
  const CacheLayout& layout = params.step.layout;
  for (int sequence = 0; sequence < params.step.count; ++sequence) {
    for (int layer = 0; layer < layout.layers; ++layer) {
      for (int head = 0; head < layout.kv_heads; ++head) {
        restore_head(params.step, params.step.sequences[sequence], layer, head);
      }
    }
  }
}

}  // namespace fasa::reference
