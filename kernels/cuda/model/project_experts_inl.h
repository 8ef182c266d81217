// Projections of pairs of tokens and experts, each by its expert's weights (expert_params.h): the
// kernels of plain projections, with other rows.
//
//   few rows   a block per pair; the first of at most kRows pairs of an expert works for all
//   many rows  tiles of an expert's rows, the experts in z; blocks beyond the last row end at once
//
// The host knows the number of pairs but not their experts, so some blocks have no work.
#pragma once

#include "kernels/cuda/model/expert_rows_inl.h"
#include "kernels/cuda/model/project_inl.h"

namespace fasa::cuda {

struct PairRows {
  ExpertPairs pairs;
  PairInput input;
  int first_expert;
  int experts;
  int64_t first_pair;  // pair of the grid's first block in y

  template <int kRows>
  FASA_DEVICE RowGroup few(const ProjectParams& params) const {
    RowGroup group = group_led_by<kRows>(pairs, first_pair + simt::block_y());
    const int64_t expert = group.weights - first_expert;
    if (expert < 0 || expert >= experts) return {};
    group.weights = expert * params.weights_step;
    return group;
  }
  template <int kRows>
  FASA_DEVICE RowGroup tile(const ProjectParams& params) const {
    const int expert = first_expert + simt::block_z();
    return {pairs.first[expert] + int64_t{simt::block_y()} * kRows, pairs.first[expert + 1],
            simt::block_z() * params.weights_step};
  }
  FASA_DEVICE int64_t x_at(const ProjectParams& params, int64_t pair) const {
    return row_of(pairs, input, pair) * params.inputs;
  }
  FASA_DEVICE static int64_t y_at(const ProjectParams& params, int64_t pair, int64_t column) {
    return pair * params.y_stride + column;
  }
};

template <DType kType, int kRows, typename Launcher>
void launch_few_pairs(const ProjectParams& product, PairRows rows, const Launcher& launch) {
  using Kernel = ProjectFewKernel<kType, kRows, PairRows>;
  constexpr int kWarps = Kernel::kThreads / simt::kWarpThreads;
  constexpr int64_t kMaxBlocks = 65528;  // whole groups
  for (; rows.first_pair < rows.pairs.pairs(); rows.first_pair += kMaxBlocks) {
    const int64_t left = rows.pairs.pairs() - rows.first_pair;
    launch(Kernel{product, rows}, {.x = static_cast<int>((product.columns + kWarps - 1) / kWarps),
                                   .y = static_cast<int>(left < kMaxBlocks ? left : kMaxBlocks)});
  }
}

template <DType kType, typename Launcher>
void start_few_pairs(const ProjectParams& product, const PairRows& rows, const Launcher& launch) {
  if (are_scattered(rows.pairs)) return launch_few_pairs<kType, 1>(product, rows, launch);
  launch_few_pairs<kType, 8>(product, rows, launch);
}

template <typename Launcher>
void start(const ProjectExpertsParams& params, const Launcher& launch) {
  const ProjectParams& product = params.product;
  const PairRows rows{params.pairs, params.input, params.first_expert, params.experts, 0};
  if (product.dtype == DType::kF32) return start_few_pairs<DType::kF32>(product, rows, launch);
  const bool bf16_products = launch.compute_capability() >= 80;
  if (!takes_few(product, params.pairs.tokens) && bf16_products &&
      in_words(product, kWordElements<DType::kBF16>)) {
    // A token chooses an expert at most once.
    return launch_project_tiles(
        product, rows, {.y = static_cast<int>(params.pairs.tokens), .z = params.experts}, launch);
  }
  start_few_pairs<DType::kBF16>(product, rows, launch);
}

}  // namespace fasa::cuda
