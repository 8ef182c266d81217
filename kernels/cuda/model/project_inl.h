// Projections, for machines without cuBLASLt and for few rows: y = x · wᵀ with f32 sums.
//
//   few rows   a warp per column: the weights are read once for kRows rows at a time, in units of
//              16 bytes, several in flight; this reading is all of a decode step's time
//   many rows  bf16 on tensor cores in tiles of 128 x 128 in shared memory; the next part of the
//              inputs is copied while one is multiplied
//
// In either kernel a row's bits depend only on the row and the weights, but the two kernels differ.
// The `Rows` parameter says which rows a block multiplies, and by which weights: those of a step
// (StepRows), or of pairs with experts (PairRows).
#pragma once

#include "kernels/cuda/element_inl.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/mma_inl.h"
#include "kernels/cuda/model/row_group.h"

namespace fasa::cuda {

template <DType kType>
inline constexpr int kWordElements = 16 / dtype_bytes(kType);

// An element of a 16-byte word.
template <DType kType>
FASA_DEVICE float element_of(const simt::Word16& word, int i) {
  if constexpr (kType == DType::kF32) {
    return simt::float_of(word.words[i]);
  } else {
    const uint32_t pair = word.words[i / 2];
    return simt::float_of(i % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
  }
}

// Whether all rows begin at multiples of `elements` elements and end at one.
constexpr bool in_words(const ProjectParams& params, int64_t elements) {
  return (params.inputs | params.row_stride() | params.x_step | params.weights_step) % elements ==
         0;
}

// Contiguous rows: groups of them in a grid's y, the batch in z.
struct StepRows {
  template <int kRows>
  FASA_DEVICE static RowGroup few(const ProjectParams& params) {
    return tile<kRows>(params);
  }
  template <int kRows>
  FASA_DEVICE static RowGroup tile(const ProjectParams& params) {
    return {int64_t{simt::block_y()} * kRows, params.rows, simt::block_z() * params.weights_step};
  }
  // Index where the row of x begins, and of an element of y.
  FASA_DEVICE static int64_t x_at(const ProjectParams& params, int64_t row) {
    return simt::block_z() * params.x_step + row * params.row_stride();
  }
  FASA_DEVICE static int64_t y_at(const ProjectParams& params, int64_t row, int64_t column) {
    return simt::block_z() * params.y_step + row * params.y_stride + column;
  }
};

// Blocks: columns in x, groups of kRows rows in y, the batch in z.
template <DType kType, int kRows, typename Rows = StepRows>
struct ProjectFewKernel {
  static constexpr const char* kName = "project";
  static constexpr int kThreads = 256;
  static constexpr int kUnder = kRows > 4 ? 2 : 4;  // loads of weights in flight per thread

  ProjectParams params;
  Rows rows;

  FASA_DEVICE void operator()() const {
    const int64_t column = int64_t{simt::block_x()} * simt::block_warps() + simt::warp();
    if (column >= params.columns) return;
    const RowGroup group = rows.template few<kRows>(params);
    if (group.first >= group.end) return;
    float sums[kRows] = {};
    constexpr int64_t kElements = kWordElements<kType>;
    const int64_t words = in_words(params, kElements) ? params.inputs / kElements : 0;
    const auto* weights = static_cast<const simt::Word16*>(params.weights) + column * words +
                          group.weights / kElements;
    int64_t word = simt::lane();
    for (; word + (kUnder - 1) * simt::kWarpThreads < words; word += kUnder * simt::kWarpThreads) {
      simt::Word16 under[kUnder];
      FASA_UNROLL
      for (int i = 0; i < kUnder; ++i) under[i] = weights[word + i * simt::kWarpThreads];
      FASA_UNROLL
      for (int i = 0; i < kUnder; ++i) {
        add_word(under[i], group, word + i * simt::kWarpThreads, sums);
      }
    }
    for (; word < words; word += simt::kWarpThreads) {
      add_word(weights[word], group, word, sums);
    }
    for (int64_t i = words * kElements + simt::lane(); i < params.inputs; i += simt::kWarpThreads) {
      add_element(column, group, i, sums);
    }
    FASA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float sum = simt::warp_sum(sums[r]);
      if (simt::lane() == 0 && group.first + r < group.end) {
        params.y[rows.y_at(params, group.first + r, column)] = sum;
      }
    }
  }

 private:
  // Rows beyond the last read the last one.
  FASA_DEVICE int64_t row_at(const RowGroup& group, int r) const {
    const int64_t row = group.first + r;
    return rows.x_at(params, row < group.end ? row : group.end - 1);
  }

  FASA_DEVICE void add_word(const simt::Word16& weight, const RowGroup& group, int64_t word,
                            float (&sums)[kRows]) const {
    FASA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const simt::Word16 x = static_cast<const simt::Word16*>(
          params.x)[row_at(group, r) / kWordElements<kType> + word];
      FASA_UNROLL
      for (int i = 0; i < kWordElements<kType>; ++i) {
        sums[r] = simt::fused(element_of<kType>(x, i), element_of<kType>(weight, i), sums[r]);
      }
    }
  }
  FASA_DEVICE void add_element(int64_t column, const RowGroup& group, int64_t i,
                               float (&sums)[kRows]) const {
    const float weight = load(kType, params.weights, group.weights + column * params.inputs + i);
    FASA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float x = load(kType, params.x, row_at(group, r) + i);
      sums[r] = simt::fused(x, weight, sums[r]);
    }
  }
};

// Blocks: tiles of columns in x, of rows in y, the batch in z. All rows must be whole words.
template <typename Rows = StepRows>
struct ProjectTileKernel {
  static constexpr const char* kName = "project";
  static constexpr int kThreads = 256;
  static constexpr int kTile = 128;   // rows and columns of a block
  static constexpr int kDepth = 32;   // inputs per part
  static constexpr int kStride = 20;  // words of a tile's row: eight rows fill all banks
  static constexpr int kWarpRows = 64;
  static constexpr int kWarpColumns = 32;
  static constexpr int kWords =
      kTile * kDepth / 8 / kThreads;  // 16-byte words per thread and operand
  static constexpr int64_t kTileWords = int64_t{kTile} * kStride;
  static constexpr int64_t kSharedBytes = 2 * 2 * kTileWords * 4;  // two operands, two stages

  ProjectParams params;
  Rows rows;

  FASA_DEVICE void operator()() const {
    const RowGroup group = rows.template tile<kTile>(params);
    if (group.first >= group.end) return;
    float sums[kWarpRows / 16][kWarpColumns / 8][4] = {};
    simt::Word16 x[kWords], w[kWords];
    const int64_t column = int64_t{simt::block_x()} * kTile;
    fetch_x(group, 0, x);
    fetch_weights(group, column, 0, w);
    int stage = 0;
    for (int64_t k = 0; k < params.inputs; k += kDepth) {
      put(x, tile(stage, 0));
      put(w, tile(stage, 1));
      simt::sync_block();  // and the other half, which is written next, has been read
      if (k + kDepth < params.inputs) {
        fetch_x(group, k + kDepth, x);
        fetch_weights(group, column, k + kDepth, w);
      }
      multiply(tile(stage, 0), tile(stage, 1), sums);
      stage ^= 1;
    }
    write(group, column, sums);
  }

 private:
  FASA_DEVICE static uint32_t* tile(int stage, int operand) {
    return reinterpret_cast<uint32_t*>(simt::shared_memory()) + (2 * stage + operand) * kTileWords;
  }
  FASA_DEVICE void fetch_x(const RowGroup& group, int64_t k, simt::Word16 (&words)[kWords]) const {
    fetch(
        static_cast<const simt::Word16*>(params.x), group.end - group.first, k,
        [&](int64_t row) { return rows.x_at(params, group.first + row); }, words);
  }
  FASA_DEVICE void fetch_weights(const RowGroup& group, int64_t column, int64_t k,
                                 simt::Word16 (&words)[kWords]) const {
    fetch(
        static_cast<const simt::Word16*>(params.weights) + group.weights / 8,
        params.columns - column, k, [&](int64_t row) { return (column + row) * params.inputs; },
        words);
  }
  // Element of an operand with `count` rows; zero beyond the end.
  template <typename At>
  FASA_DEVICE void fetch(const simt::Word16* from, int64_t count, int64_t k, const At& at,
                         simt::Word16 (&words)[kWords]) const {
    FASA_UNROLL
    for (int i = 0; i < kWords; ++i) {
      const int item = i * kThreads + simt::thread_index();
      const int64_t row = item / (kDepth / 8);
      const int64_t input = k + item % (kDepth / 8) * 8;
      words[i] = simt::Word16{};
      if (row < count && input < params.inputs) words[i] = from[(at(row) + input) / 8];
    }
  }
  FASA_DEVICE static void put(const simt::Word16 (&words)[kWords], uint32_t* tile) {
    FASA_UNROLL
    for (int i = 0; i < kWords; ++i) {
      const int item = i * kThreads + simt::thread_index();
      const int at = item / (kDepth / 8) * kStride + item % (kDepth / 8) * 4;
      *reinterpret_cast<simt::Word16*>(tile + at) = words[i];
    }
  }
  FASA_DEVICE static int warp_row() { return simt::warp() % 2 * kWarpRows; }
  FASA_DEVICE static int warp_column() { return simt::warp() / 2 * kWarpColumns; }

  FASA_DEVICE static void multiply(const uint32_t* x, const uint32_t* w,
                                   float (&sums)[kWarpRows / 16][kWarpColumns / 8][4]) {
    const int row = simt::lane() / 4;
    const int word = simt::lane() % 4;
    FASA_UNROLL
    for (int k = 0; k < kDepth / 2; k += 8) {  // words: sixteen inputs at a time
      uint32_t b[kWarpColumns / 8][2];
      FASA_UNROLL
      for (int n = 0; n < kWarpColumns / 8; ++n) {
        const uint32_t* at = w + (warp_column() + n * 8 + row) * kStride + k + word;
        b[n][0] = at[0], b[n][1] = at[4];
      }
      FASA_UNROLL
      for (int m = 0; m < kWarpRows / 16; ++m) {
        const uint32_t* at = x + (warp_row() + m * 16 + row) * kStride + k + word;
        const uint32_t a[4] = {at[0], at[8 * kStride], at[4], at[8 * kStride + 4]};
        FASA_UNROLL
        for (int n = 0; n < kWarpColumns / 8; ++n) mma_bf16(sums[m][n], a, b[n]);
      }
    }
  }
  FASA_DEVICE void write(const RowGroup& group, int64_t first_column,
                         const float (&sums)[kWarpRows / 16][kWarpColumns / 8][4]) const {
    FASA_UNROLL
    for (int m = 0; m < kWarpRows / 16; ++m) {
      FASA_UNROLL
      for (int n = 0; n < kWarpColumns / 8; ++n) {
        FASA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int64_t row = group.first + warp_row() + m * 16 + simt::lane() / 4 + i / 2 * 8;
          const int64_t column =
              first_column + warp_column() + n * 8 + simt::lane() % 4 * 2 + i % 2;
          if (row < group.end && column < params.columns) {
            params.y[rows.y_at(params, row, column)] = sums[m][n][i];
          }
        }
      }
    }
  }
};

template <DType kType, int kRows, typename Launcher>
void launch_project_few(const ProjectParams& params, const Launcher& launch) {
  using Kernel = ProjectFewKernel<kType, kRows>;
  constexpr int kWarps = Kernel::kThreads / simt::kWarpThreads;
  launch(Kernel{params, {}}, {.x = static_cast<int>((params.columns + kWarps - 1) / kWarps),
                              .y = static_cast<int>((params.rows + kRows - 1) / kRows),
                              .z = static_cast<int>(params.batch)});
}

// `grid`: rows in y, the batch in z.
template <typename Rows, typename Launcher>
void launch_project_tiles(const ProjectParams& params, const Rows& rows, simt::Grid grid,
                          const Launcher& launch) {
  using Kernel = ProjectTileKernel<Rows>;
  grid.x = static_cast<int>((params.columns + Kernel::kTile - 1) / Kernel::kTile);
  grid.y = static_cast<int>((grid.y + Kernel::kTile - 1) / Kernel::kTile);
  grid.shared_bytes = Kernel::kSharedBytes;
  launch(Kernel{params, rows}, grid);
}

template <typename Launcher>
void start(const ProjectParams& params, const Launcher& launch) {
  if (params.dtype == DType::kF32) {
    if (params.rows == 1) return launch_project_few<DType::kF32, 1>(params, launch);
    return launch_project_few<DType::kF32, 8>(params, launch);
  }
  const bool bf16_products = launch.compute_capability() >= 80;
  if (!takes_few(params, params.rows) && bf16_products &&
      in_words(params, kWordElements<DType::kBF16>)) {
    return launch_project_tiles(
        params, StepRows(),
        {.y = static_cast<int>(params.rows), .z = static_cast<int>(params.batch)}, launch);
  }
  if (params.rows == 1) return launch_project_few<DType::kBF16, 1>(params, launch);
  if (params.rows <= 4) return launch_project_few<DType::kBF16, 4>(params, launch);
  launch_project_few<DType::kBF16, 8>(params, launch);
}

}  // namespace fasa::cuda
