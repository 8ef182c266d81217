// Decode's projections by packed weights on tensor cores, for bf16 rows and codes that are numbers:
// up to eight rows at the cost of one.
//
//   block     a panel of 16 outputs; its warps take kUnder blocks of 32 places in turn
//   lane      with g = lane / 4 and t = lane % 4: line t of a block, outputs 2 g and 2 g + 1. A
//             nibble of both halves of its word is a pair of neighbours, so codes become bf16 pairs
//             in three instructions; 16 bytes of row g of x are the other operand of two products
//   scales    the panel's, copied to shared memory first; a product's sums are multiplied by them
//   offsets   times the sums of x, from a product with ones
//   order     sums of tensor cores within a scale group, of a warp's groups, of the warps: depends
//             only on the weights' shape, so that the batch does not change a row's bits
#pragma once

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/mma_inl.h"
#include "kernels/cuda/model/packed_inl.h"
#include "kernels/cuda/model/row_group.h"

namespace fasa::cuda {

// Adds up the warps' sums of a panel, `memory` [kWarps][kRows][kPackedColumns], and stores them.
// Called by the whole block; begins with a barrier.
template <int kRows, int kWarps>
FASA_DEVICE void write_sums(const ProjectPackedParams& params, const RowGroup& group,
                            const float* memory) {
  simt::sync_block();
  if (simt::thread_index() >= kRows * kPackedColumns) return;
  const int64_t row = group.first + simt::thread_index() / kPackedColumns;
  const int64_t column = simt::block_x() * kPackedColumns + simt::thread_index() % kPackedColumns;
  float sum = 0;
  FASA_UNROLL
  for (int warp = 0; warp < kWarps; ++warp) {
    sum += memory[warp * kRows * kPackedColumns + simt::thread_index()];
  }
  if (row < group.end && column < params.columns) params.y[row * params.y_stride + column] = sum;
}

// A lane's codes of a block: a line of two outputs, its planes or high nibbles.
template <int kBits>
struct PackedPairs {
  static constexpr int kHigh = PackedLine<kBits>::kHigh;

  static constexpr int kLinesInOne = 4 / PackedLine<kBits>::kLineBits;
  static constexpr int kLowBytes = static_cast<int>(kBlockLines / kLinesInOne * kLineBytes);
  static constexpr int kBytes =  // of a block
      kLowBytes + (kBits == 8 ? 4 : kHigh) * static_cast<int>(kLineBytes);

  simt::Word8 low;
  simt::Word8 high[kHigh > 0 ? kHigh : 1];

  // `from`: the block, from the lane's first output on.
  FASA_DEVICE static PackedPairs fetch(const std::byte* from, int line) {
    PackedPairs got{};
    got.low = word_at(from + line / kLinesInOne * kLineBytes);
    FASA_UNROLL
    for (int i = 0; i < kHigh; ++i) {
      got.high[i] = word_at(from + kLowBytes + (kBits == 8 ? line : i) * kLineBytes);
    }
    return got;
  }
  // Codes of places 2 j and 2 j + 1 in the halves' low bits.
  FASA_DEVICE uint32_t codes(int output, int line, int j) const {
    uint32_t word = low.words[output];
    if constexpr (kBits < 4) word = word >> line % 2 * 2 & 0x33333333u;
    uint32_t pair = word >> 4 * j & 0x000f000fu;
    if constexpr (kBits == 8) {
      pair |= (high[0].words[output] >> 4 * j & 0x000f000fu) << 4;
    } else {
      FASA_UNROLL
      for (int i = 0; i < kHigh; ++i) {
        const uint32_t plane = high[i].words[output] >> line;
        pair |= (plane >> 4 * j & 0x00010001u) << (PackedLine<kBits>::kLineBits + i);
      }
    }
    return pair;
  }

 private:
  FASA_DEVICE static simt::Word8 word_at(const std::byte* at) {
    return simt::load_once(reinterpret_cast<const simt::Word8*>(at));
  }
};

// Whether the values of a format's codes are exact in bf16 and found without a table.
constexpr bool in_bf16(const PackedFormat& format) {
  if (format.has_table) return false;
  if (format.bits == 8) return format.is_float || format.centre == 128;
  return format.centre >= 0 && format.centre <= 128;
}

// Codes to values, pairs of bf16. Codes below 128 are the last bits of 128 + code.
template <int kBits>
struct BF16Values {
  static constexpr uint32_t k128 = 0x43004300u;
  static constexpr uint32_t kOne = 0x3f803f80u;

  bool is_float;
  uint32_t minus;  // a pair of -(128 + centre)

  static BF16Values of(const PackedFormat& format) {
    const uint32_t bits = bf16_from_f32(-static_cast<float>(128 + format.centre));
    return {format.is_float, bits | bits << 16};
  }
  FASA_DEVICE uint32_t operator()(uint32_t codes) const {
    if constexpr (kBits == 8) {
      const uint32_t low = codes & 0x007f007fu;
      const uint32_t top = codes & 0x00800080u;
      // Bits of a bf16 with another bias of the exponent: times 2^120.
      if (is_float) return bf16_fused(low << 4 | top << 8, 0x7b807b80u, 0x80008000u);
      return bf16_fused(k128 | low, kOne, 0xc380c380u ^ top);  // less 256, or 128
    }
    return bf16_fused(k128 | codes, kOne, minus);
  }
};

template <int kBits, typename Rows>
struct ProjectPackedTileKernel {
  static constexpr const char* kName = ProjectPackedParams::kName;
  static constexpr int kThreads = 256;
  static constexpr int kResidentBlocks = 3;
  static constexpr int kRows = static_cast<int>(ProjectPackedParams::kRowsAtOnce);
  static constexpr int kWarps = kThreads / simt::kWarpThreads;
  static constexpr int kUnder = kBits == 4 || kBits == 2 ? 4 : 2;  // blocks of a warp in flight
  static constexpr int kBlock = static_cast<int>(kPackedBlock);
  static constexpr int kLine = static_cast<int>(kPackedLine);
  static constexpr int64_t kSumBytes = int64_t{kWarps} * kRows * kPackedColumns * 4;
  static constexpr int64_t kMaxNumberBytes = 28 << 10;

  ProjectPackedParams params;
  PackedReader<kBits> reader;
  BF16Values<kBits> values;
  int scaled;        // blocks with one scale, of those in flight, less 1
  const void* x;     // rows in the weights' order of inputs
  int64_t x_stride;  // a multiple of kPlaces
  Rows rows;

  static int64_t number_bytes(const PackedPanel& panel) {
    const int64_t bytes = panel.bytes - panel.scales;
    return bytes <= kMaxNumberBytes ? bytes : 0;
  }

  FASA_DEVICE void operator()() const {
    const RowGroup group = rows.template group<kRows>(params);
    if (group.first >= group.end) return;
    const std::byte* const panel = reader.panel_at(simt::block_x()) + group.weights;
    const std::byte* const numbers = bring_numbers(panel);
    const int64_t row = group.first + simt::lane() / 4;
    const bool has_row = row < group.end;
    const auto* const x_row = static_cast<const uint16_t*>(x) +
                              rows.x_row(has_row ? row : group.first) * x_stride +
                              line() * kPackedLine;
    // Places of this lane's line with inputs: the first of a line, less than this.
    const int limit = has_row ? static_cast<int>(x_stride) - line() * kLine : 0;
    const int blocks = static_cast<int>(params.weights.panel.blocks);
    float sums[4] = {};  // of outputs 2 g and 2 g + 1, each for rows 2 t and 2 t + 1
    Products products;
    int first = simt::warp() * kUnder;
    PackedPairs<kBits> now[kUnder];
    fetch(panel, first, now);
    simt::wait_copies<0>();
    simt::sync_block();
    for (; first < blocks; first += kWarps * kUnder) {
      PackedPairs<kBits> next[kUnder];
      fetch(panel, first + kWarps * kUnder, next);
      simt::Word16 x_words[kUnder];
      FASA_UNROLL
      for (int i = 0; i < kUnder; ++i) {
        const int place = (first + i) * kBlock;
        x_words[i] = {};
        if (place < limit) x_words[i] = *reinterpret_cast<const simt::Word16*>(x_row + place);
      }
      FASA_UNROLL
      for (int i = 0; i < kUnder; ++i) add(now[i], x_words[i], i, first, numbers, products, sums);
      FASA_UNROLL
      for (int i = 0; i < kUnder; ++i) now[i] = next[i];
    }
    write(group, sums);
  }

 private:
  struct Products {
    float d[4] = {};
    float x[4] = {};  // sums of x, for offsets
  };

  FASA_DEVICE static int line() { return simt::lane() % 4; }
  FASA_DEVICE static int output() { return simt::lane() / 4 * 2; }

  // Starts to copy the panel's scales and offsets; returns the address of a panel that has them.
  FASA_DEVICE const std::byte* bring_numbers(const std::byte* panel) const {
    const PackedPanel& layout = params.weights.panel;
    const int64_t bytes = layout.bytes - layout.scales;
    if (bytes > kMaxNumberBytes) return panel;
    std::byte* const to = simt::shared_memory() + kSumBytes;
    for (int64_t at = simt::thread_index() * 16; at < bytes; at += kThreads * 16) {
      simt::copy_async(reinterpret_cast<simt::Word16*>(to + at),
                       reinterpret_cast<const simt::Word16*>(panel + layout.scales + at));
    }
    simt::commit_copies();
    return to - layout.scales;
  }
  FASA_DEVICE void fetch(const std::byte* panel, int first,
                         PackedPairs<kBits> (&to)[kUnder]) const {
    const int last = static_cast<int>(params.weights.panel.blocks) - 1;
    FASA_UNROLL
    for (int i = 0; i < kUnder; ++i) {  // beyond the end: the last one again, which meets zeros
      const int block = first + i < last ? first + i : last;
      to[i] = PackedPairs<kBits>::fetch(panel + block * PackedPairs<kBits>::kBytes + output() * 4,
                                        line());
    }
  }

  // The i-th block of those from `first` on.
  FASA_DEVICE void add(const PackedPairs<kBits>& codes, const simt::Word16& x_words, int i,
                       int first, const std::byte* numbers, Products& products,
                       float (&sums)[4]) const {
    if (params.weights.format.group >= kBlock) {
      multiply(codes, x_words, products);
      if ((i & scaled) == scaled) scale(numbers, (first + i - scaled) * kBlock, products, sums);
      return;
    }
    FASA_NO_UNROLL
    for (int half = 0; half < 2; ++half) {  // a group each, of two lines
      multiply(codes, line() / 2 == half ? x_words : simt::Word16{}, products);
      scale(numbers, (first + i) * kBlock + half * kBlock / 2, products, sums);
    }
  }
  // The block's two products of 16 places.
  FASA_DEVICE void multiply(const PackedPairs<kBits>& codes, const simt::Word16& x_words,
                            Products& products) const {
    FASA_UNROLL
    for (int m = 0; m < 2; ++m) {
      uint32_t a[4];
      FASA_UNROLL
      for (int i = 0; i < 4; ++i) a[i] = values(codes.codes(i % 2, line(), 2 * m + i / 2));
      const uint32_t b[2] = {x_words.words[2 * m], x_words.words[2 * m + 1]};
      mma_bf16(products.d, a, b);
      if (!reader.has_offsets()) continue;
      constexpr uint32_t kOne = BF16Values<kBits>::kOne;
      const uint32_t ones[4] = {kOne, kOne, kOne, kOne};
      mma_bf16(products.x, ones, b);
    }
  }
  // Adds the products of the scale group that holds `place` to the sums.
  FASA_DEVICE void scale(const std::byte* numbers, int place, Products& products,
                         float (&sums)[4]) const {
    if (place >= x_stride) return;
    float scales[2] = {}, offsets[2] = {};
    PackedScales<2> stored;
    reader.fetch_numbers(numbers, place, output(), stored);
    reader.numbers(stored, scales, offsets);
    FASA_UNROLL
    for (int i = 0; i < 4; ++i) sums[i] = simt::fused(scales[i / 2], products.d[i], sums[i]);
    if (reader.has_offsets()) {
      FASA_UNROLL
      for (int i = 0; i < 4; ++i) sums[i] = simt::fused(offsets[i / 2], products.x[i], sums[i]);
    }
    products = {};
  }

  FASA_DEVICE void write(const RowGroup& group, const float (&sums)[4]) const {
    float* const memory = reinterpret_cast<float*>(simt::shared_memory());
    FASA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = simt::warp() * kRows + line() * 2 + i % 2;
      memory[row * kPackedColumns + output() + i / 2] = sums[i];
    }
    write_sums<kRows, kWarps>(params, group, memory);
  }
};

template <typename Launcher>
bool in_tiles(const PackedFormat& format, const Launcher& launch) {
  return in_bf16(format) && launch.compute_capability() >= 80;
}

// `groups`: row groups, in a grid's y.
template <int kBits, typename Rows, typename Launcher>
void launch_project_packed_tile(const ProjectPackedParams& params, const Rows& rows, int64_t groups,
                                const Launcher& launch) {
  using Kernel = ProjectPackedTileKernel<kBits, Rows>;
  const PackedWeights& weights = params.weights;
  const bool moved = weights.rearranges();
  const int64_t blocks = weights.format.group / kPackedBlock;  // 0: half of one
  const int scaled = blocks == 0 || blocks % 2 != 0 ? 1 : blocks % 4 != 0 ? 2 : 4;
  launch(Kernel{.params = params,
                .reader = PackedReader<kBits>::of(weights),
                .values = BF16Values<kBits>::of(weights.format),
                .scaled = scaled < Kernel::kUnder ? scaled - 1 : Kernel::kUnder - 1,
                .x = moved ? params.scratch : params.x,
                .x_stride = moved ? weights.places() : weights.inputs,
                .rows = rows},
         {.x = static_cast<int>((params.columns + kPackedColumns - 1) / kPackedColumns),
          .y = static_cast<int>(groups),
          .shared_bytes = Kernel::kSumBytes + Kernel::number_bytes(weights.panel)});
}

}  // namespace fasa::cuda
