// Decode's projections by packed weights: y = x · wᵀ with f32 sums. The weights are read once for
// up to eight rows, in units of 16 bytes, without unpacking them in memory.
//
//   block    a panel of 16 outputs; its warps take 64 inputs each in turn
//   thread   four outputs times eight inputs at a time: values of codes are multiplied by the
//            activations, which are in the multiprocessor's cache, then the sum by its scale
//   order    sums of a thread, then of a warp's lanes, then of the warps: depends only on the
//            weights' shape, so that the batch does not change a row's bits
//
// For codes in tables, f32 rows and compute capability 7.5; otherwise project_packed_tile_inl.h.
//
// If inputs are in another order, or end within a line, rows are reordered first.
#pragma once

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/model/project_packed_tile_inl.h"

namespace fasa::cuda {

// All rows of a step, at most kRows. Other kinds of rows have the same members: the rows of y that
// a block works for, the index of a row of x, the order of its weights' inputs.
struct PackedStepRows {
  template <int kRows>
  FASA_DEVICE static RowGroup group(const ProjectPackedParams& params) {
    return {0, params.rows, 0};
  }
  FASA_DEVICE static int64_t x_row(int64_t row) { return row; }
  FASA_DEVICE static const int32_t* order_of(const PackedWeights& weights, int64_t) {
    return weights.order;
  }
};

template <int kBits, bool kTable, DType kType, int kRows, typename Rows = PackedStepRows>
struct ProjectPackedKernel {
  static constexpr const char* kName = ProjectPackedParams::kName;
  static constexpr int kThreads = 256;
  static constexpr int kResidentBlocks = 2;
  static constexpr int kWarps = kThreads / simt::kWarpThreads;
  // Lines in flight per thread; lines of more than 4 bits take two loads or more.
  static constexpr int kUnder = kRows == 1 || (kRows <= 4 && kBits == 4) ? 2 : 1;
  static constexpr int kQuads = kPackedColumns / kOutputs;
  static constexpr int64_t kWarpLines = simt::kWarpThreads / kQuads;
  static constexpr int64_t kTableBytes = kTable ? 16 * int64_t{sizeof(float)} : 0;
  static constexpr int64_t kSharedBytes =
      kTableBytes + int64_t{kWarps} * kRows * kPackedColumns * int64_t{sizeof(float)};

  ProjectPackedParams params;
  PackedReader<kBits> reader;
  const void* x;     // rows in the weights' order of inputs
  int64_t x_stride;  // a multiple of kPlaces
  Rows rows;

  FASA_DEVICE void operator()() const {
    const RowGroup group = rows.template group<kRows>(params);
    if (group.first >= group.end) return;
    if constexpr (kTable) {
      if (simt::thread_index() < 16) {
        table_memory()[simt::thread_index()] =
            params.weights.format.table.data()[simt::thread_index()];
      }
      simt::sync_block();
    }
    float sums[kRows][kOutputs] = {};
    const int64_t lines = params.weights.panel.blocks * kBlockLines;
    const int quad = simt::lane() % kQuads;
    const std::byte* const panel = reader.panel_at(simt::block_x()) + group.weights;
    for (int64_t first = simt::warp() * kWarpLines; first < lines;
         first += kUnder * kWarps * kWarpLines) {
      PackedLine<kBits> under[kUnder];
      FASA_UNROLL
      for (int i = 0; i < kUnder; ++i) {
        const int64_t line = first + i * kWarps * kWarpLines + simt::lane() / kQuads;
        under[i] = reader.fetch(panel, line, quad);
      }
      FASA_UNROLL
      for (int i = 0; i < kUnder; ++i) {
        if (under[i].there) add(under[i], group, sums);
      }
    }
    write(group, sums);
  }

 private:
  FASA_DEVICE static float* table_memory() {
    return reinterpret_cast<float*>(simt::shared_memory());
  }
  FASA_DEVICE static float* sums_memory() {
    return reinterpret_cast<float*>(simt::shared_memory() + kTableBytes);
  }
  // Rows beyond the last read the last one.
  FASA_DEVICE void load_row(const RowGroup& group, int r, int64_t place,
                            float (&out)[kPlaces]) const {
    const int64_t row = group.first + r;
    const int64_t at = rows.x_row(row < group.end ? row : group.end - 1) * x_stride + place;
    constexpr int kElements = 16 / dtype_bytes(kType);
    FASA_UNROLL
    for (int w = 0; w < kPlaces / kElements; ++w) {
      const simt::Word16 word = static_cast<const simt::Word16*>(x)[at / kElements + w];
      FASA_UNROLL
      for (int i = 0; i < kElements; ++i) {
        if constexpr (kType == DType::kF32) {
          out[w * kElements + i] = simt::float_of(word.words[i]);
        } else {
          const uint32_t pair = word.words[i / 2];
          out[i] = simt::float_of(i % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
        }
      }
    }
  }

  FASA_DEVICE void add(const PackedLine<kBits>& line, const RowGroup& group,
                       float (&sums)[kRows][kOutputs]) const {
    float values[kOutputs][kPlaces];
    FASA_UNROLL
    for (int i = 0; i < kOutputs; ++i) {
      reader.values(line, i, kTable ? table_memory() : nullptr, values[i]);
    }
    float scales[kOutputs] = {}, offsets[kOutputs] = {};
    reader.numbers(line, scales, offsets);
    const bool with_offsets = reader.has_offsets();
    FASA_UNROLL
    for (int row = 0; row < kRows; ++row) {
      float x_values[kPlaces];
      load_row(group, row, line.place, x_values);
      FASA_UNROLL
      for (int i = 0; i < kOutputs; ++i) {
        float sum = 0;
        FASA_UNROLL
        for (int p = 0; p < kPlaces; ++p) sum = simt::fused(x_values[p], values[i][p], sum);
        sums[row][i] = simt::fused(scales[i], sum, sums[row][i]);
      }
      if (!with_offsets) continue;
      float x_sum = 0;
      FASA_UNROLL
      for (int p = 0; p < kPlaces; ++p) x_sum += x_values[p];
      FASA_UNROLL
      for (int i = 0; i < kOutputs; ++i) {
        sums[row][i] = simt::fused(offsets[i], x_sum, sums[row][i]);
      }
    }
  }

  FASA_DEVICE void write(const RowGroup& group, const float (&sums)[kRows][kOutputs]) const {
    float* const memory = sums_memory();
    FASA_UNROLL
    for (int row = 0; row < kRows; ++row) {
      FASA_UNROLL
      for (int i = 0; i < kOutputs; ++i) {
        float sum = sums[row][i];
        FASA_UNROLL
        for (int lanes = kQuads; lanes < simt::kWarpThreads; lanes *= 2) {
          sum += simt::shuffle_xor(sum, lanes);
        }
        if (simt::lane() < kQuads) {
          memory[(simt::warp() * kRows + row) * kPackedColumns + simt::lane() * kOutputs + i] = sum;
        }
      }
    }
    write_sums<kRows, kWarps>(params, group, memory);
  }
};

// Rows of x in the weights' places, padded with zeros. Blocks: places in x, rows in y.
template <typename Rows = PackedStepRows>
struct RearrangeKernel {
  static constexpr const char* kName = ProjectPackedParams::kName;
  static constexpr int kThreads = 256;

  ProjectPackedParams params;
  Rows rows;

  FASA_DEVICE void operator()() const {
    const int64_t place = int64_t{simt::block_x()} * kThreads + simt::thread_index();
    const int64_t places = params.weights.places();
    if (place >= places) return;
    const int64_t row = simt::block_y();
    const int32_t* const order = rows.order_of(params.weights, row);
    const int64_t input = order == nullptr ? place : order[place];
    const bool is_one = input >= 0 && input < params.weights.inputs;
    const int64_t at = rows.x_row(row) * params.weights.inputs;
    const float value = is_one ? load(params.dtype, params.x, at + input) : 0.0f;
    store(params.dtype, params.scratch, row * places + place, value);
  }
};

template <typename Rows, typename Launcher>
void launch_rearrange(const ProjectPackedParams& params, const Rows& rows, const Launcher& launch) {
  using Kernel = RearrangeKernel<Rows>;
  launch(
      Kernel{params, rows},
      {.x = static_cast<int>((params.weights.places() + Kernel::kThreads - 1) / Kernel::kThreads),
       .y = static_cast<int>(params.rows)});
}

// `groups`: row groups, in a grid's y.
template <int kBits, bool kTable, DType kType, int kRows, typename Rows, typename Launcher>
void launch_project_packed(const ProjectPackedParams& params, const Rows& rows, int64_t groups,
                           const Launcher& launch) {
  using Kernel = ProjectPackedKernel<kBits, kTable, kType, kRows, Rows>;
  const PackedWeights& weights = params.weights;
  const bool moved = weights.rearranges();
  launch(Kernel{params, PackedReader<kBits>::of(weights), moved ? params.scratch : params.x,
                moved ? weights.places() : weights.inputs, rows},
         {.x = static_cast<int>((params.columns + kPackedColumns - 1) / kPackedColumns),
          .y = static_cast<int>(groups),
          .shared_bytes = Kernel::kSharedBytes});
}

// Calls start<kBits, kTable, kType>() for the weights' format and the rows' type.
template <DType kType, typename Start>
void with_bits(const PackedFormat& format, const Start& start) {
  if (format.has_table) return start.template operator()<4, true, kType>();
  if (format.bits == 2) return start.template operator()<2, false, kType>();
  if (format.bits == 3) return start.template operator()<3, false, kType>();
  if (format.bits == 4) return start.template operator()<4, false, kType>();
  if (format.bits == 5) return start.template operator()<5, false, kType>();
  if (format.bits == 6) return start.template operator()<6, false, kType>();
  start.template operator()<8, false, kType>();
}
template <typename Start>
void with_format(const ProjectPackedParams& params, const Start& start) {
  const PackedFormat& format = params.weights.format;
  if (params.dtype == DType::kF32) return with_bits<DType::kF32>(format, start);
  with_bits<DType::kBF16>(format, start);
}

template <int kBits, bool kTable, DType kType, typename Launcher>
void launch_rows(const ProjectPackedParams& params, const Launcher& launch) {
  if constexpr (!kTable && kType == DType::kBF16) {
    if (in_tiles(params.weights.format, launch)) {
      return launch_project_packed_tile<kBits>(params, PackedStepRows(), 1, launch);
    }
  }
  const auto start = [&]<int kRows>() {
    launch_project_packed<kBits, kTable, kType, kRows>(params, PackedStepRows(), 1, launch);
  };
  if (params.rows == 1) return start.template operator()<1>();
  if (params.rows <= 4) return start.template operator()<4>();
  start.template operator()<8>();
}

template <typename Launcher>
void start(const ProjectPackedParams& params, const Launcher& launch) {
  constexpr int64_t kMax = ProjectPackedParams::kRowsAtOnce;
  for (int64_t first = 0; first < params.rows; first += kMax) {
    ProjectPackedParams part = params;
    const int64_t left = params.rows - first;
    part.rows = left < kMax ? left : kMax;
    part.x = static_cast<const std::byte*>(params.x) +
             first * params.weights.inputs * dtype_bytes(params.dtype);
    part.y += first * params.y_stride;
    if (params.weights.rearranges()) launch_rearrange(part, PackedStepRows(), launch);
    with_format(part, [&]<int kBits, bool kTable, DType kType>() {
      launch_rows<kBits, kTable, kType>(part, launch);
    });
  }
}

}  // namespace fasa::cuda
