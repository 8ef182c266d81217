// Decode's projections of pairs of tokens and experts by packed weights: the kernels of
// project_packed_inl.h, a block per pair and panel. The block of the first of up to eight rows of
// an expert works for all of them.
#pragma once

#include "kernels/cuda/model/expert_rows_inl.h"
#include "kernels/cuda/model/project_packed_inl.h"

namespace fasa::cuda {

struct PackedPairRows {
  ExpertPairs pairs;
  PairInput input;
  int64_t panels_step;
  int64_t order_step;
  int64_t first_pair;  // pair of the grid's first block in y
  bool moved;          // x was reordered for these pairs, the first one at row 0

  template <int kRows>
  FASA_DEVICE RowGroup group(const ProjectPackedParams&) const {
    RowGroup group = group_led_by<kRows>(pairs, first_pair + simt::block_y());
    group.weights *= panels_step;
    return group;
  }
  FASA_DEVICE int64_t x_row(int64_t pair) const {
    return moved ? pair - first_pair : row_of(pairs, input, pair);
  }
};

// Rows of x that are reordered to the weights' order of inputs.
struct MovedPairRows {
  PackedPairRows rows;

  FASA_DEVICE int64_t x_row(int64_t row) const {
    return row_of(rows.pairs, rows.input, rows.first_pair + row);
  }
  FASA_DEVICE const int32_t* order_of(const PackedWeights& weights, int64_t row) const {
    if (weights.order == nullptr) return nullptr;
    return weights.order + rows.pairs.experts[rows.first_pair + row] * rows.order_step;
  }
};

template <typename Launcher>
void start(const ProjectPackedExpertsParams& params, const Launcher& launch) {
  const bool moved = params.product.weights.rearranges();
  constexpr int64_t kMaxBlocks = 65528;  // whole groups
  const int64_t step = moved ? ProjectPackedParams::kRowsAtOnce : kMaxBlocks;
  PackedPairRows rows{params.pairs, params.input, params.panels_step, params.order_step, 0, moved};
  for (; rows.first_pair < params.pairs.pairs(); rows.first_pair += step) {
    ProjectPackedParams part = params.product;
    const int64_t left = params.pairs.pairs() - rows.first_pair;
    part.rows = left < step ? left : step;
    if (moved) launch_rearrange(part, MovedPairRows{rows}, launch);
    with_format(part, [&]<int kBits, bool kTable, DType kType>() {
      if constexpr (!kTable && kType == DType::kBF16) {
        if (in_tiles(part.weights.format, launch)) {
          return launch_project_packed_tile<kBits>(part, rows, part.rows, launch);
        }
      }
      if (are_scattered(params.pairs)) {
        launch_project_packed<kBits, kTable, kType, 1>(part, rows, part.rows, launch);
      } else {
        launch_project_packed<kBits, kTable, kType, 8>(part, rows, part.rows, launch);
      }
    });
  }
}

}  // namespace fasa::cuda
