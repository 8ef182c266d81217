// Decodes stored rows to keys and values: one warp per row, wherever the rows are.
#pragma once

#include "kernels/cuda/rows_inl.h"

namespace fasa::cuda {

struct ReadRowsKernel {
  static constexpr const char* kName = "read_rows";
  static constexpr int kThreads = 256;
  static constexpr int kMaxBlocks = 1024;

  ReadRowsParams params;

  FASA_DEVICE void operator()() const {
    const CacheLayout& layout = params.layout;
    const int64_t rows = params.k.tokens * layout.kv_heads;
    const int64_t step = int64_t{simt::grid_x()} * simt::block_warps();
    for (int64_t row = int64_t{simt::block_x()} * simt::block_warps() + simt::warp(); row < rows;
         row += step) {
      const int head = static_cast<int>(row % layout.kv_heads);
      const int64_t token = row / layout.kv_heads;
      const int position = params.first + static_cast<int>(token);
      const std::byte* from = params.row_blocks[position / kPageTokens] +
                              layout.row_offset(params.layer, head, position % kPageTokens);
      convert(from, layout.row.key_dim, params.k, token, head);
      convert(from + layout.row.key_bytes(), layout.row.value_dim, params.v, token, head);
    }
  }

 private:
  FASA_DEVICE void convert(const std::byte* data, int dim, const TensorView& to, int64_t token,
                           int head) const {
    const RowVector from = RowVector::of(params.layout.row.dtype, data, dim);
    const int64_t at = to.offset(token, head);
    for (int d = simt::lane(); d < dim; d += simt::kWarpThreads) {
      store(to.dtype, to.data, at + d, from.at(d));
    }
  }
};

template <typename Launcher>
void start(const ReadRowsParams& params, const Launcher& launch) {
  constexpr int kRows = ReadRowsKernel::kThreads / simt::kWarpThreads;  // per block at a time
  const int64_t blocks = (params.k.tokens * params.layout.kv_heads + kRows - 1) / kRows;
  const int64_t most = ReadRowsKernel::kMaxBlocks;
  launch(ReadRowsKernel{params}, {.x = static_cast<int>(blocks < most ? blocks : most)});
}

}  // namespace fasa::cuda
