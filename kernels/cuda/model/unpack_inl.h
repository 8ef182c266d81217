// Packed weights -> plain ones, [columns, inputs], as in ProjectParams: one thread per line of four
// outputs, panels in y, the batch in z.
#pragma once

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/model/packed_inl.h"

namespace fasa::cuda {

template <int kBits>
struct UnpackKernel {
  static constexpr const char* kName = UnpackParams::kName;
  static constexpr int kThreads = 256;
  static constexpr int kQuads = kPackedColumns / kOutputs;
  static constexpr int64_t kSharedBytes = 16 * int64_t{sizeof(float)};

  UnpackParams params;
  PackedReader<kBits> reader;
  int64_t plain_columns;  // per matrix

  FASA_DEVICE void operator()() const {
    const int64_t matrix = simt::block_z();
    if (params.rows != nullptr && params.rows[matrix] == params.rows[matrix + 1]) return;
    auto* const table = reinterpret_cast<float*>(simt::shared_memory());
    const PackedFormat& format = params.weights.format;
    if (simt::thread_index() < 16) {
      table[simt::thread_index()] = format.table.data()[simt::thread_index()];
    }
    simt::sync_block();
    const int64_t item = int64_t{simt::block_x()} * kThreads + simt::thread_index();
    const int64_t line_index = item / kQuads;
    if (line_index >= params.weights.panel.blocks * kBlockLines) return;
    const auto quad = static_cast<int>(item % kQuads);
    const std::byte* const panel = reader.panel_at(params.first / kPackedColumns + simt::block_y());
    const PackedLine<kBits> line =
        reader.fetch(panel + matrix * params.panels_step, line_index, quad);
    if (!line.there) return;
    float scales[kOutputs] = {}, offsets[kOutputs] = {};
    reader.numbers(line, scales, offsets);
    FASA_UNROLL
    for (int i = 0; i < kOutputs; ++i) {
      const int64_t column = simt::block_y() * kPackedColumns + quad * kOutputs + i;
      float values[kPlaces];
      reader.values(line, i, format.has_table ? table : nullptr, values);
      FASA_UNROLL
      for (int p = 0; p < kPlaces; ++p) values[p] = scales[i] * values[p] + offsets[i];
      if (column < params.columns) write(matrix, column, line.place, values);
    }
  }

 private:
  FASA_DEVICE void write(int64_t matrix, int64_t column, int64_t place,
                         const float (&values)[kPlaces]) const {
    const int64_t at = (matrix * plain_columns + column) * params.weights.inputs;
    if (!params.weights.rearranges()) {
      if (params.dtype == DType::kBF16) {
        simt::Word16 word;
        FASA_UNROLL
        for (int i = 0; i < 4; ++i) {
          word.words[i] = element_bits(DType::kBF16, values[2 * i]) |
                          element_bits(DType::kBF16, values[2 * i + 1]) << 16;
        }
        static_cast<simt::Word16*>(params.plain)[(at + place) / kPlaces] = word;
        return;
      }
      FASA_UNROLL
      for (int half = 0; half < 2; ++half) {
        simt::Word16 word;
        FASA_UNROLL
        for (int i = 0; i < 4; ++i) word.words[i] = simt::bits_of(values[half * 4 + i]);
        static_cast<simt::Word16*>(params.plain)[(at + place) / 4 + half] = word;
      }
      return;
    }
    FASA_UNROLL
    for (int p = 0; p < kPlaces; ++p) {
      const int32_t* const order = params.weights.order;
      const int64_t input =
          order == nullptr ? place + p : order[matrix * params.order_step + place + p];
      if (input >= 0 && input < params.weights.inputs) {
        store(params.dtype, params.plain, at + input, values[p]);
      }
    }
  }
};

template <int kBits, typename Launcher>
void launch_unpack(const UnpackParams& params, const Launcher& launch) {
  using Kernel = UnpackKernel<kBits>;
  const int64_t items = params.weights.panel.blocks * kBlockLines * Kernel::kQuads;
  constexpr int64_t kMaxGridPanels = 65535;
  const int64_t panels = (params.columns + kPackedColumns - 1) / kPackedColumns;
  for (int64_t done = 0; done < panels; done += kMaxGridPanels) {
    UnpackParams part = params;
    const int64_t left = panels - done;
    const int64_t columns = done * kPackedColumns;
    part.first += columns;
    part.columns -= columns;
    part.plain = static_cast<std::byte*>(params.plain) +
                 columns * params.weights.inputs * dtype_bytes(params.dtype);
    launch(Kernel{part, PackedReader<kBits>::of(params.weights), params.columns},
           {.x = static_cast<int>((items + Kernel::kThreads - 1) / Kernel::kThreads),
            .y = static_cast<int>(left < kMaxGridPanels ? left : kMaxGridPanels),
            .z = static_cast<int>(params.batch),
            .shared_bytes = Kernel::kSharedBytes});
  }
}

template <typename Launcher>
void start(const UnpackParams& params, const Launcher& launch) {
  const int bits = params.weights.format.bits;
  if (bits == 2) return launch_unpack<2>(params, launch);
  if (bits == 3) return launch_unpack<3>(params, launch);
  if (bits == 4) return launch_unpack<4>(params, launch);
  if (bits == 5) return launch_unpack<5>(params, launch);
  if (bits == 6) return launch_unpack<6>(params, launch);
  launch_unpack<8>(params, launch);
}

}  // namespace fasa::cuda
