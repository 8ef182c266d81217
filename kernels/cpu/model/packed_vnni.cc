// AVX-512 with dot products of bf16 and of bytes. A look-up with 4-bit codes gives 32 values of
// bf16 (two places of 16 outputs), which one instruction multiplies and adds; bytes take four
// places. Wider codes add bits to the index: 5 bits look up among 32 values, 6 bits among 64 in two
// registers; 8 bits take two look-ups, one of them for the high nibble's values. Shorter codes lie
// in nibbles with other bits, and the table repeats. Floats of 8 bits are multiplied in f32.
// clang-format off
#include "kernels/cpu/model/packed_vector_avx512.h"
// clang-format on
#include "kernels/cpu/model/packed_body_inl.h"

namespace fasa::cpu {
namespace {

// Prefetch distance: codes are read once, panel after panel, and the hardware prefetcher stops at
// each page.
constexpr int kAhead = 6144;  // bytes; 4096 and 12288 are 2 to 8 % slower, no prefetch 20 %

inline __m512i load_line(const unsigned char* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at) + kAhead, _MM_HINT_T0);
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
    if constexpr (kBits <= 4) {
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

// The planes of a half block, beginning with its bits.
template <int kBits>
struct Planes {
  __m512i bits[2] = {};

  explicit Planes(const Codes<kBits>& codes) {
    if constexpr (Codes<kBits>::kHasPlanes) {
      const __m128i by = _mm_cvtsi32_si128(codes.shift);
      bits[0] = _mm512_srl_epi32(load_line(codes.high), by);
      if constexpr (kBits == 6) bits[1] = _mm512_srl_epi32(load_line(codes.high + 64), by);
    }
  }
};

// Codes::nibbles().
template <int kBits>
inline __m512i nibbles_of(const Codes<kBits>& codes, const Planes<kBits>& planes, int line) {
  if constexpr (kBits >= 4) return load_line(codes.low + line * 64);
  const __m512i two = line == 0 ? load_line(codes.low) : shifted(_mm512_loadu_si512(codes.low), 2);
  if constexpr (kBits == 2) return two;
  return choose(_mm512_set1_epi8(0x44), shifted(planes.bits[0], line - 2), two);
}

// Values in bf16 of pair `pair` of a line: two places.
template <int kBits>
inline __m512i pair_values(const PairTables& tables, __m512i low, __m512i high,
                           const Planes<kBits>& planes, int line, int pair) {
  const __m512i index = _mm512_srli_epi32(low, (unsigned)(4 * pair));
  if constexpr (kBits <= 4 || kBits == 8) {
    static_cast<void>(high);
    return _mm512_permutexvar_epi16(index, tables.low);
  } else {
    const int bit = 4 * pair + line;
    const __m512i fifth = choose(_mm512_set1_epi16(16), shifted(planes.bits[0], bit - 4), index);
    if constexpr (kBits == 5) return _mm512_permutexvar_epi16(fifth, tables.low);
    const __m512i sixth = choose(_mm512_set1_epi16(32), shifted(planes.bits[1], bit - 5), fifth);
    return _mm512_permutex2var_epi16(tables.low, sixth, tables.high);
  }
}

inline __m512bh pair_of(const unsigned short* x) {
  int pair = 0;
  __builtin_memcpy(&pair, x, sizeof(pair));
  return (__m512bh)_mm512_set1_epi32(pair);
}

inline void add_step(const PackedTask& task, const Numbers* numbers, int64_t number, int64_t step,
                     int panel, int row, Vec dot, Vec& sum) {
  const Vec scale = load_vec(numbers[panel].scales + number * kPanelColumns);
  sum = fma(scale, dot, sum);
  if (task.sums != nullptr) {
    const Vec offset = load_vec(numbers[panel].offsets + number * kPanelColumns);
    sum = fma(offset, all(task.sums[row * task.step_stride + step]), sum);
  }
}

template <int kBits, int kRows, int kPanels>
struct PairStep {
  PairTables tables;

  explicit PairStep(const PackedShape& shape) : tables(pair_tables<kBits>(shape)) {}

  inline void run(const PackedTask& task, int64_t step, const Numbers* numbers, int64_t number,
                  Vec (&out)[kPanels][kRows]) const {
    const PackedShape& shape = *task.shape;
    const unsigned short* const x = (const unsigned short*)task.x + step * task.step;
    const int64_t left = shape.blocks * kBlockPlaces - step * task.step;
    const int64_t places = left < task.step ? left : task.step;
    __m512 sums[kPanels][kRows][4];
#pragma GCC unroll 2
    for (int panel = 0; panel < kPanels; ++panel) {
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        for (int pair = 0; pair < 4; ++pair) sums[panel][row][pair] = _mm512_setzero_ps();
      }
    }
    for (int64_t place = 0; place < places; place += 16) {
#pragma GCC unroll 2
      for (int panel = 0; panel < kPanels; ++panel) {
        Codes<kBits> codes;
        codes.at(shape, task.panel[panel], step * task.step + place, 0);
        const Planes<kBits> planes(codes);
#pragma GCC unroll 2
        for (int line = 0; line < 2; ++line) {
          const __m512i low = nibbles_of(codes, planes, line);
          const __m512i high = kBits == 8 ? load_line(codes.high + line * 64) : low;
#pragma GCC unroll 4
          for (int pair = 0; pair < 4; ++pair) {
            const __m512i values = pair_values<kBits>(tables, low, high, planes, line, pair);
            const unsigned short* const at = x + place + 8 * line + 2 * pair;
#pragma GCC unroll 4
            for (int row = 0; row < kRows; ++row) {
              __m512& sum = sums[panel][row][pair];
              const __m512bh two = pair_of(at + row * task.x_stride);
              sum = _mm512_dpbf16_ps(sum, (__m512bh)values, two);
              if constexpr (kBits == 8) {
                const __m512i upper = _mm512_permutexvar_epi16(
                    _mm512_srli_epi32(high, (unsigned)(4 * pair)), tables.high);
                sum = _mm512_dpbf16_ps(sum, (__m512bh)upper, two);
              }
            }
          }
        }
      }
    }
#pragma GCC unroll 2
    for (int panel = 0; panel < kPanels; ++panel) {
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        const __m512* const s = sums[panel][row];
        const Vec dot = ((Vec)s[0] + (Vec)s[1]) + ((Vec)s[2] + (Vec)s[3]);
        add_step(task, numbers, number, step, panel, row, dot, out[panel][row]);
      }
    }
  }
};

// Bytes of places (0, 4, 1, 5) and (2, 6, 3, 7) of a line: codes, or a table's values plus 128.
struct ByteLine {
  __m512i even, odd;
};

template <int kBits>
struct ByteCodes {
  __m512i table;

  inline ByteLine line(const Codes<kBits>& codes, const Planes<kBits>& planes, int line) const {
    const __m512i nibbles = _mm512_set1_epi8(15);
    const __m512i low = nibbles_of(codes, planes, line);
    const __m512i above = _mm512_srli_epi32(low, 4);
    if constexpr (kBits <= 4) {
      return {_mm512_shuffle_epi8(table, _mm512_and_si512(low, nibbles)),
              _mm512_shuffle_epi8(table, _mm512_and_si512(above, nibbles))};
    } else if constexpr (kBits == 8) {
      const __m512i high = load_line(codes.high + line * 64);
      return {choose(nibbles, low, _mm512_slli_epi32(high, 4)), choose(nibbles, above, high)};
    } else {
      __m512i even = _mm512_and_si512(low, nibbles);
      __m512i odd = _mm512_and_si512(above, nibbles);
#pragma GCC unroll 2
      for (int bit = 4; bit < kBits; ++bit) {
        const __m512i mask = _mm512_set1_epi8((char)(1 << bit));
        const __m512i plane = planes.bits[bit - 4];
        even = choose(mask, shifted(plane, line - bit), even);
        odd = choose(mask, shifted(plane, line + 4 - bit), odd);
      }
      return {even, odd};
    }
  }
};

inline __m512i four_of(const signed char* x) {
  int four = 0;
  __builtin_memcpy(&four, x, sizeof(four));
  return _mm512_set1_epi32(four);
}

template <int kBits, int kRows, int kPanels>
struct ByteStep {
  ByteCodes<kBits> bytes;
  float centre;

  explicit ByteStep(const PackedShape& shape) : centre((float)shape.centre) {
    signed char table[16];
    for (int i = 0; i < 16; ++i) {
      const int code = kBits < 4 ? i % (1 << kBits) : i;
      table[i] = (signed char)(shape.has_table ? shape.byte_table[i] + 128 : code);
    }
    if (shape.has_table) centre = 128;
    bytes.table = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i_u*)table));
  }

  inline void run(const PackedTask& task, int64_t step, const Numbers* numbers, int64_t number,
                  Vec (&out)[kPanels][kRows]) const {
    const PackedShape& shape = *task.shape;
    const signed char* const x = (const signed char*)task.x + step * task.step;
    __m512i sums[kPanels][kRows][2];
    for (int row = 0; row < kRows; ++row) {
      for (int panel = 0; panel < kPanels; ++panel) {
        sums[panel][row][0] = sums[panel][row][1] = _mm512_setzero_si512();
      }
    }
    for (int64_t place = 0; place < task.step; place += 16) {
#pragma GCC unroll 2
      for (int panel = 0; panel < kPanels; ++panel) {
        Codes<kBits> codes;
        codes.at(shape, task.panel[panel], step * task.step + place, 0);
        const Planes<kBits> planes(codes);
#pragma GCC unroll 2
        for (int line = 0; line < 2; ++line) {
          const ByteLine values = bytes.line(codes, planes, line);
#pragma GCC unroll 4
          for (int row = 0; row < kRows; ++row) {
            const signed char* const at = x + row * task.x_stride + place + 8 * line;
            __m512i* const s = sums[panel][row];
            s[0] = _mm512_dpbusd_epi32(s[0], values.even, four_of(at));
            s[1] = _mm512_dpbusd_epi32(s[1], values.odd, four_of(at + 4));
          }
        }
      }
    }
#pragma GCC unroll 2
    for (int panel = 0; panel < kPanels; ++panel) {
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        const __m512i sum = _mm512_add_epi32(sums[panel][row][0], sums[panel][row][1]);
        const int64_t at = row * task.step_stride + step;
        // Integers below 2^24: exact in f32.
        Vec dot = to_floats((Bits)sum) - all(centre * task.x_totals[at]);
        dot = dot * (task.x_scales[at] * shape.table_unit);
        add_step(task, numbers, number, step, panel, row, dot, out[panel][row]);
      }
    }
  }
};

template <typename Step, int kRows, int kPanels>
void multiply_with(const PackedTask& task) {
  const PackedShape& shape = *task.shape;
  const int64_t steps = (shape.blocks * kBlockPlaces + task.step - 1) / task.step;
  const int64_t at_once = kChunkPlaces / task.step;
  const Step body(shape);
  Numbers numbers[kPanels];
  for (int i = 0; i < kRows * kPanelsAtOnce * kPanelColumns; ++i) task.y[i] = 0;
  for (int64_t first = 0; first < steps; first += at_once) {
    const int64_t count = steps - first < at_once ? steps - first : at_once;
    prefetch_numbers<kPanels>(task, first, count, steps);
    for (int panel = 0; panel < kPanels; ++panel) {
      widen_numbers(shape, task.panel[panel], task.step, first, count, &numbers[panel]);
    }
    Vec out[kPanels][kRows];
    load_outputs(task.y, 0, out);
    for (int64_t i = 0; i < count; ++i) body.run(task, first + i, numbers, i, out);
    store_outputs(out, 0, task.y);
  }
}

template <template <int, int, int> class Step, int kBits>
void rows_of(const PackedTask& task) {
  if (task.rows == 4) return multiply_with<Step<kBits, 4, 1>, 4, 1>(task);
  if (task.rows == 3) return multiply_with<Step<kBits, 3, 1>, 3, 1>(task);
  if (task.rows == 2) {
    return task.panels == 2 ? multiply_with<Step<kBits, 2, 2>, 2, 2>(task)
                            : multiply_with<Step<kBits, 2, 1>, 2, 1>(task);
  }
  task.panels == 2 ? multiply_with<Step<kBits, 1, 2>, 1, 2>(task)
                   : multiply_with<Step<kBits, 1, 1>, 1, 1>(task);
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

const PackedBodies kPackedBodiesVnni = {multiply_f32, multiply_bf16, multiply_int8, unpack,
                                        kMaxRows};

}  // namespace fasa::cpu
