#include <cstring>

#include "tests/support/reference/kernels.h"
#include "tests/support/reference/row_codes.h"
#include "tests/support/reference/slices.h"

namespace fasa::reference {
namespace {

// The row's first location, and the others (or null).
struct Homes {
  std::byte* row;
  std::byte* copy;
};

Homes homes_of(const AppendParams& params, const SequenceDesc& desc, int head, int position) {
  const CacheLayout& layout = params.step.layout;
  std::byte* protected_row = nullptr;
  const bool over_link = desc.mode == StepMode::kDecode && desc.access == RowAccess::kOverLink;
  if (desc.protected_rows != nullptr &&
      (over_link || position < layout.sinks || position >= desc.end() - layout.recent)) {
    protected_row = desc.protected_rows + layout.protected_offset(params.step.layer, head,
                                                                  layout.protected_slot(position));
  }
  const int slot = position % kPageTokens;
  if (desc.access == RowAccess::kLocal) {
    return {
        desc.row_blocks[position / kPageTokens] + layout.row_offset(params.step.layer, head, slot),
        protected_row};
  }
  if (desc.mode == StepMode::kDecode) return {protected_row, nullptr};
  return {params.step.write_back_row(desc, head, position), protected_row};
}

void append_token(const AppendParams& params, const SequenceDesc& desc, int index, int head) {
  const CacheLayout& layout = params.step.layout;
  const int layer = params.step.layer;
  const int position = desc.start + index;
  const int token = desc.first_token + index;
  const int slot = position % kPageTokens;
  const Homes homes = homes_of(params, desc, head, position);
  if (!params.in_place()) {
    reference::write_row(layout.row, params.k, params.v, token, head, homes.row);
  }
  if (homes.copy != nullptr && !params.in_place()) {
    std::memcpy(homes.copy, homes.row, static_cast<size_t>(layout.row.bytes()));
  }
  if (std::byte* device = desc.device_row_block(position / kPageTokens); device != nullptr) {
    std::memcpy(device + layout.row_offset(layer, head, slot), homes.row,
                static_cast<size_t>(layout.row.bytes()));
  }

  if (layout.slice.dims == 0 || desc.tail == nullptr) return;
  const SliceFormat format = layout.slice.tail();
  std::byte* tail = desc.tail + layout.tail_offset(layer, head);
  const SliceFormat value_format = layout.values.tail();
  std::byte* values = desc.tail + layout.value_tail_offset(layer, head);
  if (slot == 0) {
    std::memset(tail, 0, static_cast<size_t>(format.page_bytes()));
    std::memset(values, 0, static_cast<size_t>(value_format.page_bytes()));
  }
  reference::write_tail_token(format, params.step.slice_dims + head * layout.slice.dims,
                              DType::kF32, row_key(layout.row, homes.row).data(), slot, tail);
  reference::write_tail_token(value_format, nullptr, DType::kF32,
                              row_value(layout.row, homes.row).data(), slot, values);
  if (slot != kPageTokens - 1) return;
  std::byte* block = desc.slice_blocks[position / kPageTokens];
  reference::seal_page(layout.slice, tail, block + layout.slice_offset(layer, head),
                       reinterpret_cast<float*>(block) + layout.head_index(layer, head));
  if (!layout.has_values()) return;
  reference::seal_page(layout.values, values, block + layout.value_offset(layer, head),
                       reinterpret_cast<float*>(block + layout.value_base_offset(layer, head)));
}

}  // namespace

void append(const AppendParams& params) {
  for (int sequence = 0; sequence < params.step.count; ++sequence) {
    const SequenceDesc& desc = params.step.sequences[sequence];
    for (int index = 0; index < desc.tokens; ++index) {
      for (int head = 0; head < params.step.layout.kv_heads; ++head) {
        append_token(params, desc, index, head);
      }
    }
  }
}

}  // namespace fasa::reference
