#include <cstring>

#include "tests/support/reference/kernels.h"

namespace fasa::reference {

void write_back(const WriteBackParams& params) {
  const CacheLayout& layout = params.step.layout;
  const int layer = params.step.layer;
  for (int sequence = 0; sequence < params.step.count; ++sequence) {
    const SequenceDesc& desc = params.step.sequences[sequence];
    for (int position = desc.start; position < desc.end(); ++position) {
      const int page = position / kPageTokens;
      const int slot = position % kPageTokens;
      for (int head = 0; head < layout.kv_heads; ++head) {
        const int64_t offset = layout.row_offset(layer, head, slot);
        const std::byte* row =
            desc.access == RowAccess::kLocal ? desc.row_blocks[page] + offset
            : desc.mode == StepMode::kPrefill
                ? params.step.write_back_row(desc, head, position)
                : desc.protected_rows +
                      layout.protected_offset(layer, head, layout.protected_slot(position));
        std::byte* home =
            desc.home_blocks != nullptr ? desc.home_blocks[page] : desc.row_blocks[page];
        std::memcpy(home + offset, row, static_cast<size_t>(layout.row.bytes()));
      }
    }
  }
}

}  // namespace fasa::reference
