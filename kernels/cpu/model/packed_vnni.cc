// AVX-512 with dot products of bf16 and of bytes. A look-up with 4-bit codes gives 32 values of
// bf16 (two places of 16 outputs), which one instruction multiplies and adds; bytes take four
// places. Wider codes add bits to the index: 5 bits look up among 32 values, 6 bits among 64 in two
// registers; 8 bits take two look-ups, one of them for the high nibble's values. Shorter codes lie
// in nibbles with other bits, and the table repeats. Floats of 8 bits are multiplied in f32.
// clang-format off
#include "kernels/cpu/model/packed_vector_avx512.h"
// clang-format on
#include "kernels/cpu/model/packed_whole_inl.h"

namespace fasa::cpu {
namespace {

inline void prefetch(const unsigned char* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at) + kAhead, _MM_HINT_T0);
}
inline __m512i load_line(const unsigned char* at) {
  prefetch(at);
  return _mm512_loadu_si512(at);
}

inline __m512i shifted(__m512i words, int right) {
  return right >= 0 ? _mm512_srli_epi32(words, (unsigned)right)
                    : _mm512_slli_epi32(words, (unsigned)-right);
}

// `bits` under `mask`, else `otherwise`.
inline __m512i choose(__m512i mask, __m512i bits, __m512i otherwise) {
  return _mm512_ternarylogic_epi32(mask, bits, otherwise, 0xca);
}

// Values of codes in bf16.
struct PairTables {
  __m512i low;   // values of indices 0 to 31; 4 and 8 bits: 16 values, twice
  __m512i high;  // of indices 32 to 63; 8 bits: of high nibbles
};

inline unsigned short bf16_of(float value) {
  unsigned bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

template <int kBits>
inline PairTables pair_tables(const PackedShape& shape) {
  unsigned short low[32];
  unsigned short high[32];
  for (int i = 0; i < 32; ++i) {
    if constexpr (kBits < 4) {
      const int third = kBits == 3 ? i / 2 % 2 * 4 : 0;
      low[i] = bf16_of(shape.table[i % (1 << kBits)]);
      high[i] = bf16_of(shape.table[i / 4 % 4 + third]);
    } else if constexpr (kBits == 4) {
      low[i] = high[i] = bf16_of(shape.table[i % 16]);
    } else if constexpr (kBits == 8) {
      low[i] = bf16_of((float)(i % 16));
      high[i] = bf16_of((float)(i % 16 * 16 - shape.centre));
    } else {
      low[i] = bf16_of((float)(i - shape.centre));
      high[i] = bf16_of((float)(i + 32 - shape.centre));
    }
  }
  return {_mm512_loadu_si512(low), _mm512_loadu_si512(high)};
}

// A half of a block: sixteen places.
template <int kBits, int kHalf>
struct Half {
  const unsigned char* low;
  const unsigned char* high;

  explicit Half(const unsigned char* block)
      : low(block + kHalf * WeightCodes<kBits>::kLowBytes),
        high(block + 2 * WeightCodes<kBits>::kLowBytes + (kBits == 8 ? kHalf * 128 : 0)) {
    if constexpr (kHalf == 0 && WeightCodes<kBits>::kHasPlanes) prefetch(high);
    if constexpr (kHalf == 1 && kBits == 6) prefetch(high + 64);
  }

  // The bits of plane `plane` for line kLine, moved to bit `to` of each nibble.
  template <int kLine>
  inline __m512i plane_bits(int plane, int to) const {
    return shifted(_mm512_loadu_si512(high + plane * 64), kLine + 2 * kHalf - to);
  }
  // The bits of codes that lines have. Of 2 and 3 bits both lines are one register: the first line
  // in the low bits of nibbles.
  template <int kLine>
  inline __m512i nibbles() const {
    if constexpr (kBits >= 4) return load_line(low + kLine * 64);
    return kLine == 0 ? load_line(low) : _mm512_loadu_si512(low);
  }
};

// Values in bf16 of a line's pairs: two places each.
template <int kBits, int kHalf, int kLine>
struct PairLine {
  __m512i index;
  __m512i high = {};  // 5 and 6 bits: the others, in the low bits of nibbles; 8: the high nibbles

  explicit PairLine(const Half<kBits, kHalf>& half) : index(half.template nibbles<kLine>()) {
    if constexpr (kBits == 3) {
      // The third bit goes above the first line's two bits, and below the second's.
      constexpr int kTo = kLine == 0 ? 2 : 1;
      const __m512i third = half.template plane_bits<kLine>(0, kTo);
      index = choose(_mm512_set1_epi8(0x11 << kTo), third, index);
    }
    if constexpr (kBits == 5 || kBits == 6) high = half.template plane_bits<kLine>(0, 0);
    if constexpr (kBits == 6) {
      high = choose(_mm512_set1_epi8(0x22), half.template plane_bits<kLine>(1, 1), high);
    }
    if constexpr (kBits == 8) high = load_line(half.high + kLine * 64);
  }
  inline __m512i values(const PairTables& tables, int pair) const {
    const __m512i at = _mm512_srli_epi32(index, (unsigned)(4 * pair));
    if constexpr (kBits < 4)
      return _mm512_permutexvar_epi16(at, kLine == 0 ? tables.low : tables.high);
    if constexpr (kBits == 4 || kBits == 8) return _mm512_permutexvar_epi16(at, tables.low);
    const __m512i above = shifted(high, 4 * pair - 4);
    if constexpr (kBits == 5) {
      return _mm512_permutexvar_epi16(choose(_mm512_set1_epi16(16), above, at), tables.low);
    }
    const __m512i both = choose(_mm512_set1_epi16(48), above, at);
    return _mm512_permutex2var_epi16(tables.low, both, tables.high);
  }
  // 8 bits: the parts of the high nibbles.
  inline __m512i upper(const PairTables& tables, int pair) const {
    return _mm512_permutexvar_epi16(_mm512_srli_epi32(high, (unsigned)(4 * pair)), tables.high);
  }
};

inline __m512bh pair_of(const unsigned short* x) {
  int pair = 0;
  __builtin_memcpy(&pair, x, sizeof(pair));
  return (__m512bh)_mm512_set1_epi32(pair);
}

template <int kBits, int kRows, int kPanels>
struct PairStep {
  using Sum = __m512;
  PairTables tables;

  explicit PairStep(const PackedShape& shape) : tables(pair_tables<kBits>(shape)) {}

  template <int kHalf, int kLine>
  [[gnu::always_inline]] inline void add_line(const Half<kBits, kHalf>& half,
                                              const unsigned short* x,
                                              __m512 (&sums)[kRows][2]) const {
    const PairLine<kBits, kHalf, kLine> line(half);
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {
      const __m512i values = line.values(tables, pair);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        __m512& sum = sums[row][pair % 2];
        const __m512bh two = pair_of(x + row * kBlockPlaces + 8 * kLine + 2 * pair);
        sum = _mm512_dpbf16_ps(sum, (__m512bh)values, two);
        if constexpr (kBits == 8) {
          sum = _mm512_dpbf16_ps(sum, (__m512bh)line.upper(tables, pair), two);
        }
      }
    }
  }
  template <int kHalf>
  [[gnu::always_inline]] inline void add(const PackedTask& task, const unsigned char* block,
                                         int64_t place, __m512 (&sums)[kRows][2]) const {
    const Half<kBits, kHalf> half(block);
    const auto* const x = activations<unsigned short>(task, place + 16 * kHalf);
    add_line<kHalf, 0>(half, x, sums);
    add_line<kHalf, 1>(half, x, sums);
  }
  inline Vec dot(const __m512 (&sums)[2], const PackedNumbers&) const {
    return (Vec)sums[0] + (Vec)sums[1];
  }
};

// Bytes of places (0, 4, 1, 5) and (2, 6, 3, 7) of a line: codes, or a table's values plus 128.
struct ByteLine {
  __m512i even, odd;
};

template <int kBits>
struct ByteCodes {
  __m512i table;

  template <int kHalf, int kLine>
  inline ByteLine line(const Half<kBits, kHalf>& half) const {
    const __m512i nibbles = _mm512_set1_epi8(kBits < 4 ? (1 << kBits) - 1 : 15);
    __m512i low = half.template nibbles<kLine>();
    if constexpr (kBits < 4) low = shifted(low, 2 * kLine);
    if constexpr (kBits == 3) {
      low = choose(_mm512_set1_epi8(0x44), half.template plane_bits<kLine>(0, 2), low);
    }
    const __m512i above = _mm512_srli_epi32(low, 4);
    if constexpr (kBits == 8) {
      const __m512i high = load_line(half.high + kLine * 64);
      return {choose(nibbles, low, _mm512_slli_epi32(high, 4)), choose(nibbles, above, high)};
    }
    __m512i even = _mm512_and_si512(low, nibbles);
    __m512i odd = _mm512_and_si512(above, nibbles);
    if constexpr (kBits == 4) {
      return {_mm512_shuffle_epi8(table, even), _mm512_shuffle_epi8(table, odd)};
    }
#pragma GCC unroll 2
    for (int bit = 4; bit < kBits; ++bit) {
      const __m512i mask = _mm512_set1_epi8((char)(1 << bit));
      even = choose(mask, half.template plane_bits<kLine>(bit - 4, bit), even);
      odd = choose(mask, half.template plane_bits<kLine>(bit - 4, bit - 4), odd);
    }
    return {even, odd};
  }
};

inline __m512i four_of(const signed char* x) {
  int four = 0;
  __builtin_memcpy(&four, x, sizeof(four));
  return _mm512_set1_epi32(four);
}

template <int kBits, int kRows, int kPanels>
struct ByteStep {
  using Sum = __m512i;
  ByteCodes<kBits> bytes;

  explicit ByteStep(const PackedShape& shape) {
    signed char table[16];
    for (int i = 0; i < 16; ++i) {
      table[i] = (signed char)(shape.has_table ? shape.byte_table[i] + 128 : i);
    }
    bytes.table = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i_u*)table));
  }

  template <int kHalf, int kLine>
  [[gnu::always_inline]] inline void add_line(const Half<kBits, kHalf>& half, const signed char* x,
                                              __m512i (&sums)[kRows][2]) const {
    const ByteLine values = bytes.template line<kHalf, kLine>(half);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const signed char* const at = x + row * kBlockPlaces + 8 * kLine;
      sums[row][0] = _mm512_dpbusd_epi32(sums[row][0], values.even, four_of(at));
      sums[row][1] = _mm512_dpbusd_epi32(sums[row][1], values.odd, four_of(at + 4));
    }
  }
  template <int kHalf>
  [[gnu::always_inline]] inline void add(const PackedTask& task, const unsigned char* block,
                                         int64_t place, __m512i (&sums)[kRows][2]) const {
    const Half<kBits, kHalf> half(block);
    const auto* const x = activations<signed char>(task, place + 16 * kHalf);
    add_line<kHalf, 0>(half, x, sums);
    add_line<kHalf, 1>(half, x, sums);
  }
  inline Vec dot(const __m512i (&sums)[2], const PackedNumbers& numbers) const {
    const Bits whole = (Bits)_mm512_add_epi32(sums[0], sums[1]) + numbers.base;
    return floats_of(whole) * all(numbers.scale);
  }
};

// Adds a step's products, scaled, to the outputs, and clears them.
template <typename Body, int kRows, int kPanels>
[[gnu::always_inline]] inline void end_step(const PackedTask& task, const Body& body,
                                            Groups<kPanels>& groups, int64_t step,
                                            typename Body::Sum (&sums)[kPanels][kRows][2],
                                            Vec (&out)[kPanels][kRows]) {
  const auto dot = [&](int panel, int row, const PackedNumbers& numbers) {
    auto& two = sums[panel][row];
    const Vec whole = body.dot(two, numbers);
    two[0] = two[1] = typename Body::Sum{};
    return whole;
  };
  add_step<kRows, kPanels>(task, groups, step, 0, dot, out);
  groups.next();
}

// Steps [first, first + count): half blocks, or blocks and more.
template <typename Body, int kRows, int kPanels>
[[gnu::always_inline]] inline void multiply_steps(const PackedTask& task, const Body& body,
                                                  int64_t first, int64_t count,
                                                  Groups<kPanels>& groups,
                                                  Vec (&out)[kPanels][kRows]) {
  const PackedShape& shape = *task.shape;
  const int64_t halves = task.step < kBlockPlaces ? 2 : 1;                         // steps a block
  const int64_t length = task.step < kBlockPlaces ? 1 : task.step / kBlockPlaces;  // blocks
  typename Body::Sum sums[kPanels][kRows][2] = {};
  for (int64_t step = first; step < first + count; step += halves) {
    const int64_t begin = step * task.step / kBlockPlaces;
    const int64_t end = begin + length < shape.blocks ? begin + length : shape.blocks;
    if (begin % (kSuperPlaces / kBlockPlaces) == 0) groups.widen(task, 0);
    for (int64_t block = begin; block < end; ++block) {
#pragma GCC unroll 2
      for (int panel = 0; panel < kPanels; ++panel) {
        body.template add<0>(task, task.panel[panel] + block * shape.block_bytes,
                             block * kBlockPlaces, sums[panel]);
      }
      if (halves == 2) {
        end_step<Body, kRows, kPanels>(task, body, groups, step, sums, out);
      }
#pragma GCC unroll 2
      for (int panel = 0; panel < kPanels; ++panel) {
        body.template add<1>(task, task.panel[panel] + block * shape.block_bytes,
                             block * kBlockPlaces, sums[panel]);
      }
    }
    end_step<Body, kRows, kPanels>(task, body, groups, step + halves - 1, sums, out);
  }
}

template <typename Body, int kRows, int kPanels>
void multiply_blocks(const PackedTask& task) {
  const int64_t steps = (task.shape->blocks * kBlockPlaces + task.step - 1) / task.step;
  const int64_t at_once = kChunkPlaces / task.step;
  const Body body(*task.shape);
  Groups<kPanels> groups(task);
  Vec out[kPanels][kRows] = {};
  for (int64_t first = 0; first < steps; first += at_once) {
    const int64_t count = steps - first < at_once ? steps - first : at_once;
    prefetch_numbers<kPanels>(task, first, count, steps);
    multiply_steps<Body, kRows, kPanels>(task, body, first, count, groups, out);
  }
  store_outputs(out, 0, task.y);
}

template <template <int, int, int> class Step, int kBits>
void rows_of(const PackedTask& task) {
  with_rows<kManyPackedRows>(task.rows, [&]<int kRows>() {
    if constexpr (kRows <= kTwoPanelRows) {
      if (task.panels == 2) return multiply_blocks<Step<kBits, kRows, 2>, kRows, 2>(task);
    }
    multiply_blocks<Step<kBits, kRows, 1>, kRows, 1>(task);
  });
}

template <template <int, int, int> class Step>
void bits_of(const PackedTask& task) {
  with_bits(*task.shape, [&]<int kBits>() {
    if constexpr (kBits != kE4m3) rows_of<Step, kBits>(task);
  });
}

void multiply_bf16(const PackedTask& task) { bits_of<PairStep>(task); }
void multiply_int8(const PackedTask& task) { bits_of<ByteStep>(task); }

}  // namespace

const PackedBodies kPackedBodiesVnni = {multiply_f32,  multiply_int16, multiply_bf16,
                                        multiply_int8, unpack,         kTwoPanelRows};

}  // namespace fasa::cpu
