// A prompt's attention to rows in bf16 or int8 on AMX tiles: exact products of bf16 summed in f32.
// Codes of int8 rows are bf16 as they are, their scales go to scores and weights. Other queries
// than bf16 ones are the sum of two numbers (exact to 2^-17); so are weights, which are rounded
// once where outputs are bf16. A row's bits do not depend on its neighbours in a tile, as long as
// its sums are not subnormal, which tiles flush to zero.
// clang-format off
#include "kernels/cpu/rows/row_vector_avx512.h"
// clang-format on
#include "kernels/amx.h"
#include "kernels/cpu/rows/row_prefill_inl.h"

namespace fasa::cpu {
namespace {

constexpr int kSide = 16;  // rows of a tile; columns of f32 or of pairs of bf16

// Tiles 0 to 3 are sums (two of rows, two of columns), 4 and 5 the left side, 6 and 7 the right.
// All strides are bytes.
struct TileProduct {
  const unsigned char* left;  // [rows][terms]
  int64_t left_stride;
  const float* right;  // [pairs of terms][columns] of pairs
  int64_t right_stride;
  int pairs;  // a multiple of kSide
};

template <int kRows, int kColumns>
inline void load_sums(const float* at, int64_t stride) {
  [[maybe_unused]] const int64_t down = kSide * stride / static_cast<int64_t>(sizeof(float));
  _tile_loadd(0, at, stride);
  if constexpr (kColumns == 2) _tile_loadd(1, at + kSide, stride);
  if constexpr (kRows == 2) {
    _tile_loadd(2, at + down, stride);
    if constexpr (kColumns == 2) _tile_loadd(3, at + down + kSide, stride);
  }
}

template <int kRows, int kColumns>
inline void store_sums(float* at, int64_t stride) {
  [[maybe_unused]] const int64_t down = kSide * stride / static_cast<int64_t>(sizeof(float));
  _tile_stored(0, at, stride);
  if constexpr (kColumns == 2) _tile_stored(1, at + kSide, stride);
  if constexpr (kRows == 2) {
    _tile_stored(2, at + down, stride);
    if constexpr (kColumns == 2) _tile_stored(3, at + down + kSide, stride);
  }
}

inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

template <int kRows, int kColumns>
inline void add_products(const TileProduct& p) {
  const unsigned char* left = p.left;
  const unsigned char* right = reinterpret_cast<const unsigned char*>(p.right);
  for (int at = 0; at < p.pairs; at += kSide) {
    _tile_loadd(4, left, p.left_stride);
    if constexpr (kRows == 2) _tile_loadd(5, left + kSide * p.left_stride, p.left_stride);
    _tile_loadd(6, right, p.right_stride);
    if constexpr (kColumns == 2) _tile_loadd(7, right + kSide * sizeof(float), p.right_stride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kColumns == 2) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kRows == 2) {
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kColumns == 2) _tile_dpbf16ps(3, 5, 7);
    }
    left += kSide * sizeof(float);
    right += kSide * p.right_stride;
  }
}

// Calls block(row, rows) for blocks of two tiles of rows, then one.
template <typename Block>
inline void in_tiles(int begin, int end, const Block& block) {
  int at = begin;
  for (; at + kSide < end; at += 2 * kSide) block.template run<2>(at);
  if (at < end) block.template run<1>(at);
}

// Scores of all keys of the page before the scale, of parts [first_part, first_part + parts) of the
// queries; from the second part on they are added.
struct ScoreBlock {
  const PageTask& task;
  int pairs;
  int first_part;
  int parts;

  template <int kRows>
  void run(int row) const {
    const int64_t stride = task.q_stride * static_cast<int64_t>(sizeof(float));
    const auto* const query = reinterpret_cast<const unsigned char*>(task.q + row * task.q_stride);
    for (int key = 0; key < kKeys; key += 2 * kSide) {
      float* const sums = task.scores + row * kKeys + key;
      if (first_part == 0) {
        zero_sums();
      } else {
        load_sums<kRows, 2>(sums, kKeys * sizeof(float));
      }
      for (int part = first_part; part < first_part + parts; ++part) {
        add_products<kRows, 2>(
            {query + part * stride / 2, stride, task.keys + key, kKeys * sizeof(float), pairs});
      }
      store_sums<kRows, 2>(sums, kKeys * sizeof(float));
    }
  }
};

// Adds weights * values; a row of weights is two rows of bf16, [2][64].
struct ValueBlock {
  const PageTask& task;

  template <int kRows>
  void run(int row) const {
    int64_t column = 0;
    for (; column + kSide < task.value_stride; column += 2 * kSide) columns<kRows, 2>(row, column);
    if (column < task.value_stride) columns<kRows, 1>(row, column);
  }

 private:
  template <int kRows, int kColumns>
  void columns(int row, int64_t column) const {
    const int64_t stride = task.value_stride * static_cast<int64_t>(sizeof(float));
    const auto* const weights = reinterpret_cast<const unsigned char*>(task.scores + row * kKeys);
    const auto add_part = [&](int part) {
      add_products<kRows, kColumns>({weights + part * kKeys * sizeof(uint16_t),
                                     kKeys * sizeof(float), task.values + column, stride,
                                     kKeys / 2});
    };
    float* const sums = task.out + row * task.value_stride + column;
    load_sums<kRows, kColumns>(sums, stride);
    add_part(0);
    if (!task.rounds_weights) add_part(1);
    store_sums<kRows, kColumns>(sums, stride);
  }
};

// The first `count` elements of a row in bf16, then zeros.
template <RowType kType>
inline __m512i load_words(const unsigned char* row, int count) {
  const __mmask32 mask = count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
  if constexpr (kType == kRowBF16) return _mm512_maskz_loadu_epi16(mask, row);
  const __m256i codes = _mm256_maskz_loadu_epi8(mask, row);
  const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(codes)));
  const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(codes, 1)));
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

inline __mmask32 not_finite(__m512i words) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  return _mm512_cmpeq_epi16_mask(_mm512_and_si512(words, exponent), exponent);
}

struct KeyPairs {
  int pairs;  // whole tiles of them
  bool finite;
};

// Keys as pairs of dimensions, [pairs][64]; slots and dimensions beyond the last are zero.
template <RowType kType>
inline KeyPairs lay_out_keys(const PageTask& task) {
  alignas(64) float strip[kKeys * kPadFloats] = {};
  int pairs = 0;
  __mmask32 bad = 0;
  for (int at = 0; at < task.key_dim; at += kPadBf16, pairs += kSide) {
    for (int slot = 0; slot < task.slots; ++slot) {
      const unsigned char* key = task.rows[slot] + int64_t{at} * kElementBytes<kType>;
      const __m512i words = load_words<kType>(key, task.key_dim - at);
      bad |= not_finite(words);
      store(strip + slot * kPadFloats, (Vec)words);
    }
    transpose_strip(strip, kPadFloats, task.keys + pairs * kKeys);
  }
  return {pairs, bad == 0};
}

// Sets infinite and NaN words to zero.
inline void clear_not_finite(float* pairs, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const __m512i words = (__m512i)load(pairs + i);
    store(pairs + i, (Vec)_mm512_maskz_mov_epi16(_knot_mask32(not_finite(words)), words));
  }
}

// Sets the scores of the rows, before the scale.
inline void score_in_tiles(const PageTask& task, KeyPairs keys, RowRange rows) {
  asm volatile("" ::: "memory");  // GCC's tile loads do not say that they read memory
  if (keys.finite || task.q_parts == 1) {
    return in_tiles(rows.begin, rows.end, ScoreBlock{task, keys.pairs, 0, task.q_parts});
  }
  // An infinite key times the second part, which may be zero, would be NaN.
  in_tiles(rows.begin, rows.end, ScoreBlock{task, keys.pairs, 0, 1});
  clear_not_finite(task.keys, int64_t{keys.pairs} * kKeys);
  asm volatile("" ::: "memory");
  in_tiles(rows.begin, rows.end, ScoreBlock{task, keys.pairs, 1, 1});
}

// Values as pairs of slots, [32][value_stride] pairs; slots and dimensions beyond the last are
// zero, and so are infinite and NaN values: false if there is one.
template <RowType kType>
inline bool lay_out_values(const PageTask& task) {
  alignas(64) static constexpr unsigned short kLow[32] = {
      0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  __mmask32 bad = 0;
  for (int slot = 0; slot < kKeys; slot += 2) {
    float* out = task.values + slot / 2 * task.value_stride;
    for (int at = 0; at < task.value_stride; at += kPadBf16) {
      const auto words_of = [&](int s) {
        const int64_t offset = task.key_bytes + int64_t{at} * kElementBytes<kType>;
        return s < task.slots ? load_words<kType>(task.rows[s] + offset, task.value_dim - at)
                              : __m512i{};
      };
      const __m512i first = words_of(slot);
      const __m512i second = words_of(slot + 1);
      bad |= not_finite(first) | not_finite(second);
      store(out + at, (Vec)_mm512_permutex2var_epi16(first, low, second));
      if (at + kSide < task.value_stride) {
        store(out + at + kSide, (Vec)_mm512_permutex2var_epi16(first, high, second));
      }
    }
  }
  if (bad != 0) clear_not_finite(task.values, kKeys / 2 * task.value_stride);
  return bad == 0;
}

// What the slots' codes are multiplied by; zero beyond the last slot.
inline void load_scales(const PageTask& task, int64_t offset, int dim, float* scales) {
  for (int slot = 0; slot < kKeys; ++slot) {
    scales[slot] = slot < task.slots ? scale_of(task.rows[slot] + offset, dim) : 0.0f;
  }
}

// Sets scales that are infinite or NaN to zero: false if there is one.
inline bool clear_scales(float* scales) {
  bool finite = true;
  for (int slot = 0; slot < kKeys; ++slot) {
    if (scales[slot] * 0.0f == 0.0f) continue;
    scales[slot] = 0;
    finite = false;
  }
  return finite;
}

inline void multiply_by(float* row, const float* factors) {
  for (int i = 0; i < kKeys; i += kLanes) store(row + i, load(row + i) * load(factors + i));
}

inline void scale_row(float* row, int64_t count, float factor) {
  for (int64_t i = 0; i < count; i += kLanes) store(row + i, load(row + i) * splat(factor));
}

// 2^x for x <= 0, within 2 ulp; below -126 exactly 0; NaN stays NaN. Cephes' exp2f.
inline Vec exp2_of(Vec x) {
  const __m512 n = _mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const Vec f = x - (Vec)n;
  Vec p = splat(1.535336188319500e-4f);
  p = fma(p, f, splat(1.339887440266574e-3f));
  p = fma(p, f, splat(9.618437357674640e-3f));
  p = fma(p, f, splat(5.550332471162809e-2f));
  p = fma(p, f, splat(2.402264791363012e-1f));
  p = fma(p, f, splat(6.931472028550421e-1f));
  p = fma(p, f, splat(1.0f));
  const __mmask16 counts = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
  return (Vec)_mm512_maskz_scalef_ps(counts, (__m512)p, n);
}

inline Quad reduce_max4(const Vec* rows) {
  const auto of_two = [](Vec a, Vec b) {
    return _mm512_max_ps(_mm512_unpacklo_ps((__m512)a, (__m512)b),
                         _mm512_unpackhi_ps((__m512)a, (__m512)b));
  };
  const __m512 ab = of_two(rows[0], rows[1]);
  const __m512 cd = of_two(rows[2], rows[3]);
  const __m512 quads =
      _mm512_max_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
  const __m256 half =
      _mm256_max_ps(_mm512_castps512_ps256(quads), _mm512_extractf32x8_ps(quads, 1));
  return (Quad)_mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// The first `count` rows of a tile of scores become weights in bf16, [2][64] a row: what they are
// rounded to, and, unless weights may be rounded, the rest.
class TileWeights {
 public:
  // `unit`: scores are multiplied by it. `value_scales`: weights are, slot by slot; or null.
  TileWeights(const PageTask& task, int row, float unit, const float* value_scales)
      : task_(task), row_(row), unit_(unit), value_scales_(value_scales) {}

  void run() {
    find_maxima();
    update_state();
    for (int i = 0; i < kSide; i += 4) {
      Vec sums[4];
      for (int j = 0; j < 4; ++j) sums[j] = weigh(i + j);
      const Quad four = reduce_add4(sums[0], sums[1], sums[2], sums[3]);
      *reinterpret_cast<QuadMem*>(sums_ + i) = four;
    }
    float* const sum = task_.sum + row_;
    store(sum, fma(load(sum), load(task_.factors + row_), load(sums_)));
  }

 private:
  static constexpr float kLog2e = 1.44269504088896341f;

  float* scores(int i) const { return task_.scores + (row_ + i) * kKeys; }

  // Hides what a row may not see, and returns its lanes' maxima.
  Vec masked(int i) const {
    float* const s = scores(i);
    const SlotRange seen = visible_slots(task_, row_ + i);
    if (seen.begin > 0 || seen.end < kKeys) {
      for (int t = 0; t < seen.begin; ++t) s[t] = minus_infinity();
      for (int t = seen.end > 0 ? seen.end : 0; t < kKeys; ++t) s[t] = minus_infinity();
    }
    return max_of(max_of(load(s), load(s + kLanes)),
                  max_of(load(s + 2 * kLanes), load(s + 3 * kLanes)));
  }

  void find_maxima() {
    for (int i = 0; i < kSide; i += 4) {
      Vec rows[4];
      for (int j = 0; j < 4; ++j) rows[j] = masked(i + j);
      *reinterpret_cast<QuadMem*>(maxima_ + i) = reduce_max4(rows);
    }
  }

  void update_state() {
    float* const max = task_.max + row_;
    const Vec before = load(max);
    const Vec now = max_of(before, load(maxima_) * splat(unit_));
    const auto empty = now == splat(minus_infinity());
    const Vec offset = empty ? Vec{} : now;
    store(offsets_, offset * splat(kLog2e));
    store(task_.factors + row_, empty ? splat(1.0f) : exp2_of((before - offset) * splat(kLog2e)));
    store(max, now);
  }

  // Returns the lanes' sums of weights.
  Vec weigh(int i) const {
    float* const s = scores(i);
    const Vec unit = splat(unit_ * kLog2e);
    const Vec offset = splat(-offsets_[i]);
    Vec weights[4];
    for (int v = 0; v < 4; ++v) weights[v] = exp2_of(fma(load(s + v * kLanes), unit, offset));
    const Vec sum = (weights[0] + weights[1]) + (weights[2] + weights[3]);
    if (value_scales_ != nullptr) {
      for (int v = 0; v < 4; ++v) weights[v] = weights[v] * load(value_scales_ + v * kLanes);
    }
    auto* const out = reinterpret_cast<__m512i*>(s);
    for (int half = 0; half < 2; ++half) {
      const Vec* const two = weights + 2 * half;
      const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh((__m512)two[1], (__m512)two[0]);
      _mm512_storeu_si512(out + half, rounded);
      if (task_.rounds_weights) continue;
      const __m512 low = rest(two[0], _mm512_castsi512_si256(rounded));
      const __m512 high = rest(two[1], _mm512_extracti64x4_epi64(rounded, 1));
      _mm512_storeu_si512(out + 2 + half, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
    return sum;
  }

  // What rounding took away; zero where that would be subnormal, which takes long.
  static __m512 rest(Vec weights, __m256i rounded) {
    const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16);
    const __mmask16 counts =
        _mm512_cmp_ps_mask(_mm512_abs_ps((__m512)weights), _mm512_set1_ps(0x1p-100f), _CMP_GE_OQ);
    return _mm512_maskz_sub_ps(counts, (__m512)weights, _mm512_castsi512_ps(wide));
  }

  const PageTask& task_;
  const int row_;
  const float unit_;
  const float* const value_scales_;
  alignas(64) float maxima_[kSide];
  alignas(64) float offsets_[kSide];
  alignas(64) float sums_[kSide];
};

// Turns scores of tiles of rows into weights. `key_scales`, `value_scales`: of coded rows' slots,
// or null.
inline void weigh_in_tiles(const PageTask& task, RowRange rows, const float* key_scales,
                           const float* value_scales) {
  const bool in_place = key_scales != nullptr || task.slopes != nullptr || task.score_cap > 0;
  for (int row = rows.begin; row < rows.end && in_place; ++row) {
    float* const scores = task.scores + row * kKeys;
    if (key_scales != nullptr) multiply_by(scores, key_scales);
    scale_row(scores, kKeys, task.scale);
    if (task.slopes != nullptr) add_slopes(task, row);
    if (task.score_cap > 0) cap_scores(task, row);
  }
  for (int row = rows.begin; row < rows.end; row += kSide) {
    TileWeights(task, row, in_place ? 1 : task.scale, value_scales).run();
  }
  for (int row = rows.begin; row < rows.end; ++row) {
    const float factor = task.factors[row];
    float* const sums = task.out + row * task.value_stride;
    if (factor != 1) scale_row(sums, task.value_stride, factor);
  }
}

// Adds weights * values for the values that are not finite, to the rows that see them.
template <RowType kType>
inline void add_not_finite(const PageTask& task, RowRange rows) {
  for (int slot = 0; slot < task.slots; ++slot) {
    const unsigned char* value = task.rows[slot] + task.key_bytes;
    const float scale = kIsCoded<kType> ? scale_of(value, task.value_dim) : 1;
    for (int dim = 0; dim < task.value_dim; ++dim) {
      const float v = load_row_part<kType>(value + dim * kElementBytes<kType>, 1)[0] * scale;
      if (v * 0.0f == 0.0f) continue;
      for (int row = rows.begin; row < rows.end; ++row) {
        const SlotRange seen = visible_slots(task, row);
        if (slot < seen.begin || slot >= seen.end) continue;
        const auto* const weights =
            reinterpret_cast<const unsigned char*>(task.scores + row * kKeys);
        const float weight = load_row_part<kRowBF16>(weights + slot * sizeof(uint16_t), 1)[0];
        task.out[row * task.value_stride + dim] += weight * v;
      }
    }
  }
}

class Tiles {
 public:
  Tiles() { _tile_loadconfig(&kWholeTiles); }
  ~Tiles() { _tile_release(); }
};

template <RowType kType>
inline void attend_in_tiles(const PageTask& task) {
  RowRange rows = seeing_rows(task);
  if (rows.begin == rows.end) return;
  // Whole tiles: rows that see nothing of the page keep their state.
  rows = {rows.begin / kSide * kSide, (rows.end + kSide - 1) / kSide * kSide};
  alignas(64) float key_scales[kKeys];
  alignas(64) float value_scales[kKeys];
  const Tiles tiles;
  score_in_tiles(task, lay_out_keys<kType>(task), rows);
  bool finite = lay_out_values<kType>(task);
  if constexpr (kIsCoded<kType>) {
    load_scales(task, 0, task.key_dim, key_scales);
    load_scales(task, task.key_bytes, task.value_dim, value_scales);
    finite = clear_scales(value_scales);
    weigh_in_tiles(task, rows, key_scales, value_scales);
  } else {
    weigh_in_tiles(task, rows, nullptr, nullptr);
  }
  asm volatile("" ::: "memory");
  in_tiles(rows.begin, rows.end, ValueBlock{task});
  if (!finite) add_not_finite<kType>(task, rows);
}

}  // namespace

void prefill_bf16_rows_amx(const PageTask& task) { attend_in_tiles<kRowBF16>(task); }
void prefill_int8_rows_amx(const PageTask& task) { attend_in_tiles<kRowInt8>(task); }

}  // namespace fasa::cpu
