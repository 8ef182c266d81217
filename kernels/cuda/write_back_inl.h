// Copies new rows to pinned host memory: one warp per row. Writes over the link do not wait, so few
// threads keep it busy.
#pragma once

#include "kernels/cuda/rows_inl.h"

namespace fasa::cuda {

struct WriteBackKernel {
  static constexpr const char* kName = "write_back";
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 8;  // per sequence; the host need not know its length

  WriteBackParams params;

  FASA_DEVICE void operator()() const {
    const CacheLayout& layout = params.step.layout;
    const SequenceDesc& desc = params.step.sequences[simt::block_y()];
    const int64_t rows = int64_t{desc.tokens} * layout.kv_heads;
    const int64_t step = int64_t{simt::grid_x()} * simt::block_warps();
    for (int64_t row = int64_t{simt::block_x()} * simt::block_warps() + simt::warp(); row < rows;
         row += step) {
      const int head = static_cast<int>(row % layout.kv_heads);
      const int position = desc.start + static_cast<int>(row / layout.kv_heads);
      std::byte* to = desc.home_block(position / kPageTokens) +
                      layout.row_offset(params.step.layer, head, position % kPageTokens);
      copy_row(to, source(desc, head, position), layout.row.bytes());
    }
  }

 private:
  FASA_DEVICE const std::byte* source(const SequenceDesc& desc, int head, int position) const {
    const CacheLayout& layout = params.step.layout;
    if (desc.access == RowAccess::kLocal) {
      return desc.row_blocks[position / kPageTokens] +
             layout.row_offset(params.step.layer, head, position % kPageTokens);
    }
    if (desc.mode == StepMode::kDecode) {
      return desc.protected_rows +
             layout.protected_offset(params.step.layer, head, layout.protected_slot(position));
    }
    return params.step.write_back_row(desc, head, position);
  }
};

template <typename Launcher>
void start(const WriteBackParams& params, const Launcher& launch) {
  launch(WriteBackKernel{params}, {.x = WriteBackKernel::kBlocks, .y = params.step.count});
}

}  // namespace fasa::cuda
