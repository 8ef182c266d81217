// Projections, for machines without cuBLASLt and for few rows: y = x · wᵀ with f32 sums.
//
//   few rows   a warp a column: the weights are read once for kRows rows at a time, in units of 16
//              bytes, several under way; all of a decode step's time is that reading
//   many rows  bf16 on tensor cores in tiles of 128 x 128 through shared memory, the next part of
//              the inputs on its way while one is multiplied
//
// In either a row's bits depend on the row and the weights alone, but the two differ.
#pragma once

#include "kernels/cuda/element_inl.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/mma_inl.h"

namespace fasa::cuda {

template <DType kType>
inline constexpr int kWordElements = 16 / dtype_bytes(kType);

// An element of a word of 16 bytes.
template <DType kType>
FASA_DEVICE float element_of(const simt::Word16& word, int i) {
  if constexpr (kType == DType::kF32) {
    return simt::float_of(word.words[i]);
  } else {
    const uint32_t pair = word.words[i / 2];
    return simt::float_of(i % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
  }
}

// Whether all rows begin at whole words of so many elements, and are some.
constexpr bool in_words(const ProjectParams& params, int64_t elements) {
  return (params.inputs | params.row_stride() | params.x_step | params.weights_step) % elements ==
         0;
}

// Blocks: columns in x, groups of kRows rows in y, the batch in z.
template <DType kType, int kRows>
struct ProjectFewKernel {
  static constexpr const char* kName = "project";
  static constexpr int kThreads = 256;
  static constexpr int kUnder = kRows > 4 ? 2 : 4;  // loads of weights under way in a thread

  ProjectParams params;

  FASA_DEVICE void operator()() const {
    const int64_t column = int64_t{simt::block_x()} * simt::block_warps() + simt::warp();
    if (column >= params.columns) return;
    const int64_t row = int64_t{simt::block_y()} * kRows;
    float sums[kRows] = {};
    constexpr int64_t kElements = kWordElements<kType>;
    const int64_t words = in_words(params, kElements) ? params.inputs / kElements : 0;
    const auto* weights = static_cast<const simt::Word16*>(params.weights) + column * words +
                          simt::block_z() * (params.weights_step / kElements);
    int64_t word = simt::lane();
    for (; word + (kUnder - 1) * simt::kWarpThreads < words; word += kUnder * simt::kWarpThreads) {
      simt::Word16 under[kUnder];
      FASA_UNROLL
      for (int i = 0; i < kUnder; ++i) under[i] = weights[word + i * simt::kWarpThreads];
      FASA_UNROLL
      for (int i = 0; i < kUnder; ++i) {
        add_word(under[i], row, word + i * simt::kWarpThreads, sums);
      }
    }
    for (; word < words; word += simt::kWarpThreads) {
      add_word(weights[word], row, word, sums);
    }
    for (int64_t i = words * kElements + simt::lane(); i < params.inputs; i += simt::kWarpThreads) {
      add_element(column, row, i, sums);
    }
    FASA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float sum = simt::warp_sum(sums[r]);
      if (simt::lane() == 0 && row + r < params.rows) {
        params.y[simt::block_z() * params.y_step + (row + r) * params.y_stride + column] = sum;
      }
    }
  }

 private:
  // Where the row of x begins.
  FASA_DEVICE int64_t row_at(int64_t row) const {
    const int64_t at = row < params.rows ? row : params.rows - 1;
    return simt::block_z() * params.x_step + at * params.row_stride();
  }

  FASA_DEVICE void add_word(const simt::Word16& weight, int64_t row, int64_t word,
                            float (&sums)[kRows]) const {
    FASA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const simt::Word16 x =
          static_cast<const simt::Word16*>(params.x)[row_at(row + r) / kWordElements<kType> + word];
      FASA_UNROLL
      for (int i = 0; i < kWordElements<kType>; ++i) {
        sums[r] = simt::fused(element_of<kType>(x, i), element_of<kType>(weight, i), sums[r]);
      }
    }
  }
  FASA_DEVICE void add_element(int64_t column, int64_t row, int64_t i, float (&sums)[kRows]) const {
    const int64_t at = simt::block_z() * params.weights_step + column * params.inputs + i;
    const float weight = load(kType, params.weights, at);
    FASA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float x = load(kType, params.x, row_at(row + r) + i);
      sums[r] = simt::fused(x, weight, sums[r]);
    }
  }
};

// Blocks: tiles of columns in x, of rows in y, the batch in z. All rows are whole words.
struct ProjectTileKernel {
  static constexpr const char* kName = "project";
  static constexpr int kThreads = 256;
  static constexpr int kTile = 128;   // rows and columns of a block
  static constexpr int kDepth = 32;   // inputs at a time
  static constexpr int kStride = 20;  // words of a tile's row: eight rows fill all banks
  static constexpr int kWarpRows = 64;
  static constexpr int kWarpColumns = 32;
  static constexpr int kWords = kTile * kDepth / 8 / kThreads;  // of 16 bytes a thread and operand
  static constexpr int64_t kTileWords = int64_t{kTile} * kStride;
  static constexpr int64_t kSharedBytes = 2 * 2 * kTileWords * 4;  // two operands, two stages

  ProjectParams params;

  FASA_DEVICE void operator()() const {
    float sums[kWarpRows / 16][kWarpColumns / 8][4] = {};
    simt::Word16 x[kWords], w[kWords];
    const int64_t row = int64_t{simt::block_y()} * kTile;
    const int64_t column = int64_t{simt::block_x()} * kTile;
    fetch_x(row, 0, x);
    fetch_weights(column, 0, w);
    int stage = 0;
    for (int64_t k = 0; k < params.inputs; k += kDepth) {
      put(x, tile(stage, 0));
      put(w, tile(stage, 1));
      simt::sync_block();  // and the other stage, which is written next, has been read
      if (k + kDepth < params.inputs) {
        fetch_x(row, k + kDepth, x);
        fetch_weights(column, k + kDepth, w);
      }
      multiply(tile(stage, 0), tile(stage, 1), sums);
      stage ^= 1;
    }
    write(row, column, sums);
  }

 private:
  FASA_DEVICE static uint32_t* tile(int stage, int operand) {
    return reinterpret_cast<uint32_t*>(simt::shared_memory()) + (2 * stage + operand) * kTileWords;
  }
  FASA_DEVICE void fetch_x(int64_t row, int64_t k, simt::Word16 (&words)[kWords]) const {
    fetch(static_cast<const simt::Word16*>(params.x) + simt::block_z() * (params.x_step / 8),
          {row, params.rows, params.row_stride()}, k, words);
  }
  FASA_DEVICE void fetch_weights(int64_t column, int64_t k, simt::Word16 (&words)[kWords]) const {
    fetch(static_cast<const simt::Word16*>(params.weights) +
              simt::block_z() * (params.weights_step / 8),
          {column, params.columns, params.inputs}, k, words);
  }
  // Of an operand: from row `first`, of `count` in all, so many elements apart.
  struct Rows {
    int64_t first, count, stride;
  };
  // Beyond the end: zero.
  FASA_DEVICE void fetch(const simt::Word16* from, const Rows& rows, int64_t k,
                         simt::Word16 (&words)[kWords]) const {
    FASA_UNROLL
    for (int i = 0; i < kWords; ++i) {
      const int item = i * kThreads + simt::thread_index();
      const int64_t row = rows.first + item / (kDepth / 8);
      const int64_t at = k + item % (kDepth / 8) * 8;
      words[i] = simt::Word16{};
      if (row < rows.count && at < params.inputs) words[i] = from[(row * rows.stride + at) / 8];
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
  FASA_DEVICE void write(int64_t first_row, int64_t first_column,
                         const float (&sums)[kWarpRows / 16][kWarpColumns / 8][4]) const {
    FASA_UNROLL
    for (int m = 0; m < kWarpRows / 16; ++m) {
      FASA_UNROLL
      for (int n = 0; n < kWarpColumns / 8; ++n) {
        FASA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int64_t row = first_row + warp_row() + m * 16 + simt::lane() / 4 + i / 2 * 8;
          const int64_t column =
              first_column + warp_column() + n * 8 + simt::lane() % 4 * 2 + i % 2;
          if (row < params.rows && column < params.columns) {
            params.y[simt::block_z() * params.y_step + row * params.y_stride + column] =
                sums[m][n][i];
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
  launch(Kernel{params}, {.x = static_cast<int>((params.columns + kWarps - 1) / kWarps),
                          .y = static_cast<int>((params.rows + kRows - 1) / kRows),
                          .z = static_cast<int>(params.batch)});
}

template <typename Launcher>
void launch_project_tiles(const ProjectParams& params, const Launcher& launch) {
  constexpr int64_t kTile = ProjectTileKernel::kTile;
  launch(ProjectTileKernel{params}, {.x = static_cast<int>((params.columns + kTile - 1) / kTile),
                                     .y = static_cast<int>((params.rows + kTile - 1) / kTile),
                                     .z = static_cast<int>(params.batch),
                                     .shared_bytes = ProjectTileKernel::kSharedBytes});
}

template <typename Launcher>
void start(const ProjectParams& params, const Launcher& launch) {
  if (params.dtype == DType::kF32) {
    if (params.rows == 1) return launch_project_few<DType::kF32, 1>(params, launch);
    return launch_project_few<DType::kF32, 8>(params, launch);
  }
  const bool bf16_products = launch.compute_capability() >= 80;
  if (params.rows > kFewRows && bf16_products && in_words(params, kWordElements<DType::kBF16>)) {
    return launch_project_tiles(params, launch);
  }
  if (params.rows == 1) return launch_project_few<DType::kBF16, 1>(params, launch);
  if (params.rows <= 4) return launch_project_few<DType::kBF16, 4>(params, launch);
  launch_project_few<DType::kBF16, 8>(params, launch);
}

}  // namespace fasa::cuda
