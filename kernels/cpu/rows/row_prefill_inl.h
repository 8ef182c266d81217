// Exact attention of a block of query rows over one page of keys. Keys are expanded and transposed,
// values expanded, once per block and page (some 4 % of the work at 192 rows and head_dim 128);
// both products then run through one register-tiled loop. Every (row, key) score and every (row,
// dimension) sum is accumulated in one order, so a row's bits do not depend on its neighbours.
#pragma once

#include "kernels/cpu/rows/row_math_inl.h"
#include "kernels/softmax_state.h"

namespace fasa::cpu {
namespace {

constexpr int kKeys = kMaxPageTokens;

struct SlotRange {
  int begin, end;  // empty: begin >= end
};

// The page's slots that a query row may see.
inline SlotRange visible_slots(const PageTask& task, int row) {
  const int64_t query = task.first_query + row / task.group;
  int64_t end = query + 1 - task.position;
  if (end > task.slots) end = task.slots;
  int64_t begin = task.window > 0 ? query + 1 - task.window - task.position : 0;
  if (begin < 0) begin = 0;
  return {static_cast<int>(begin < kKeys ? begin : kKeys), static_cast<int>(end < 0 ? 0 : end)};
}

// A term of a product: of two floats, or of two pairs of bf16, each stored in a float.
struct FloatTerms {
  static Vec add(Vec a, Vec b, Vec sum) { return fma(a, b, sum); }
};
#ifdef FASA_BF16_DOT
struct PairTerms {
  static Vec add(Vec a, Vec b, Vec sum) { return dot_bf16(sum, (Bf16Vec)a, (Bf16Vec)b); }
};
#endif

// C[m] = factor * (A[m] B), or with kAccumulate C[m] = factors[m] * C[m] + A[m] B, over kRows rows
// and kVectors registers of columns; one accumulator and ascending k per element.
struct Product {
  const float* a;
  int64_t a_stride;
  const float* b;
  int64_t b_stride;
  int terms;
  float* c;
  int64_t c_stride;
  const float* factors;
  float factor;
};

template <typename Terms, bool kAccumulate, int kRows, int kVectors>
inline void multiply_block(const Product& p, int row, int column) {
  Vec sums[kRows][kVectors] = {};
  float* c = p.c + row * p.c_stride + column;
  if constexpr (kAccumulate) {
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[m][v] = splat(p.factors[row + m]) * load(c + m * p.c_stride + v * kLanes);
      }
    }
  }
  const float* a = p.a + row * p.a_stride;
  const float* b = p.b + column;
  for (int k = 0; k < p.terms; ++k, ++a, b += p.b_stride) {
    Vec right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) right[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const Vec left = splat(a[m * p.a_stride]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[m][v] = Terms::add(left, right[v], sums[m][v]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Vec result = sums[m][v];
      if constexpr (!kAccumulate) result = result * splat(p.factor);
      store(c + m * p.c_stride + v * kLanes, result);
    }
  }
}

template <typename Terms, bool kAccumulate, int kRows>
inline void multiply_rows(const Product& p, int row, int columns) {
  int at = 0;
  for (; at + kGemmVectors * kLanes <= columns; at += kGemmVectors * kLanes) {
    multiply_block<Terms, kAccumulate, kRows, kGemmVectors>(p, row, at);
  }
  for (; at < columns; at += kLanes) multiply_block<Terms, kAccumulate, kRows, 1>(p, row, at);
}

// `columns` is a multiple of kLanes.
template <typename Terms, bool kAccumulate>
inline void multiply(const Product& p, int begin, int end, int columns) {
  int row = begin;
  for (; row + kGemmRows <= end; row += kGemmRows) {
    multiply_rows<Terms, kAccumulate, kGemmRows>(p, row, columns);
  }
  for (; row + 2 <= end; row += 2) multiply_rows<Terms, kAccumulate, 2>(p, row, columns);
  if (row < end) multiply_rows<Terms, kAccumulate, 1>(p, row, columns);
}

// out[dim * 64 + key] = in[key * in_stride + dim]: four keys x four dimensions.
inline void transpose_quad(const float* in, int64_t in_stride, float* out) {
  Quad r[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) r[i] = *reinterpret_cast<const QuadMem*>(in + i * in_stride);
  const Quad a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
  const Quad b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const Quad c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  const Quad d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  *reinterpret_cast<QuadMem*>(out) = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  *reinterpret_cast<QuadMem*>(out + kKeys) = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  *reinterpret_cast<QuadMem*>(out + 2 * kKeys) = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  *reinterpret_cast<QuadMem*>(out + 3 * kKeys) = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

// strip[slot][kPadFloats] to [count][64].
inline void transpose_strip(const float* strip, int count, float* out) {
  const int whole = count / 4 * 4;
  for (int dim = 0; dim < whole; dim += 4) {
    for (int slot = 0; slot < kKeys; slot += 4) {
      transpose_quad(strip + slot * kPadFloats + dim, kPadFloats, out + dim * kKeys + slot);
    }
  }
  for (int dim = whole; dim < count; ++dim) {
    for (int slot = 0; slot < kKeys; ++slot) {
      out[dim * kKeys + slot] = strip[slot * kPadFloats + dim];
    }
  }
}

// Keys of the page as [key_dim][64] in f32; slots beyond the last are zero.
template <RowType kType>
inline void expand_keys(const PageTask& task) {
  alignas(64) float strip[kKeys * kPadFloats] = {};
  Vec scales[kKeys];
  for (int slot = 0; slot < task.slots && kIsCoded<kType>; ++slot) {
    scales[slot] = splat(scale_of(task.rows[slot], task.key_dim));
  }
  for (int at = 0; at < task.key_dim; at += kPadFloats) {
    const int count = task.key_dim - at < kPadFloats ? task.key_dim - at : kPadFloats;
    for (int slot = 0; slot < task.slots; ++slot) {
      const unsigned char* key = task.rows[slot] + at * kElementBytes<kType>;
      for (int i = 0; i < count; i += kLanes, key += kLanes * kElementBytes<kType>) {
        const int left = count - i;
        Vec v = left >= kLanes ? load_row<kType>(key) : load_row_part<kType>(key, left);
        if constexpr (kIsCoded<kType>) v = v * scales[slot];
        store(strip + slot * kPadFloats + i, v);
      }
    }
    transpose_strip(strip, count, task.keys + at * kKeys);
  }
}

#ifdef FASA_BF16_DOT
// Keys in bf16 as pairs of dimensions, [key_dim / 2][64]; slots beyond the last are zero.
inline void transpose_pairs(const PageTask& task) {
  alignas(64) float strip[kKeys * kPadFloats] = {};
  const int pairs = task.key_dim / 2;
  for (int at = 0; at < pairs; at += kPadFloats) {
    const int count = pairs - at < kPadFloats ? pairs - at : kPadFloats;
    for (int slot = 0; slot < task.slots; ++slot) {
      const unsigned char* key = task.rows[slot] + at * static_cast<int64_t>(sizeof(float));
      const Bf16Vec words =
          count == kPadFloats ? load_bf16_pairs(key) : load_bf16_pairs_part(key, 2 * count);
      store(strip + slot * kPadFloats, (Vec)words);
    }
    transpose_strip(strip, count, task.keys + at * kKeys);
  }
}
#endif

// Values as [64][value_stride] in f32, zero-padded. False if one is infinite or NaN: then a weight
// of zero does not make its product zero.
template <RowType kType>
inline bool expand_values(const PageTask& task) {
  Vec probe = {};  // x * 0 is 0 for finite x, else NaN, which stays
  for (int slot = 0; slot < task.slots; ++slot) {
    float* out = task.values + slot * task.value_stride;
    const unsigned char* value = task.rows[slot] + task.key_bytes;
    Vec scale = {};
    if constexpr (kIsCoded<kType>) scale = splat(scale_of(value, task.value_dim));
    for (int at = 0; at < task.value_stride; at += kLanes) {
      const int left = task.value_dim - at;
      Vec v = {};
      if (left >= kLanes) {
        v = load_row<kType>(value + at * kElementBytes<kType>);
      } else if (left > 0) {
        v = load_row_part<kType>(value + at * kElementBytes<kType>, left);
      }
      if constexpr (kIsCoded<kType>) v = v * scale;
      store(out + at, v);
      probe = fma(v, Vec{}, probe);
    }
  }
  return reduce_add(probe) == 0;
}

inline void add_slopes(const PageTask& task, int row) {
  float* scores = task.scores + row * kKeys;
  const float slope = task.scale * task.slopes[row % task.group];
  const int64_t query = task.first_query + row / task.group;
  const float nearest = static_cast<float>(task.position - query);
  for (int t = 0; t < kKeys; ++t) scores[t] += slope * (nearest + static_cast<float>(t));
}

inline void cap_scores(const PageTask& task, int row) {
  float* scores = task.scores + row * kKeys;
  for (int t = 0; t < kKeys; t += kLanes) {
    store(scores + t, soft_capped(load(scores + t), task.score_cap));
  }
}

// Turns masked scores of one row into weights; updates running max and sum, and the factor of
// earlier sums.
inline void weigh_row(const PageTask& task, int row) {
  float* scores = task.scores + row * kKeys;
  if (task.slopes != nullptr) add_slopes(task, row);
  if (task.score_cap > 0) cap_scores(task, row);
  const SlotRange seen = visible_slots(task, row);
  for (int t = 0; t < seen.begin; ++t) scores[t] = minus_infinity();
  for (int t = seen.end; t < kKeys; ++t) scores[t] = minus_infinity();
  Vec top = splat(task.max[row]);
  for (int t = 0; t < kKeys; t += kLanes) top = max_of(top, load(scores + t));
  const float max = reduce_max(top);
  const bool empty = max == minus_infinity();
  const float offset = empty ? 0.0f : max;
  Vec sum = {};
  for (int t = 0; t < kKeys; t += kLanes) {
    const Vec weights = exp_of(load(scores + t) - splat(offset));
    sum = sum + weights;
    store(scores + t, weights);
  }
  const float factor = empty ? 1.0f : exp_scalar(task.max[row] - max);
  task.factors[row] = factor;
  task.max[row] = max;
  task.sum[row] = task.sum[row] * factor + reduce_add(sum);
}

struct RowRange {
  int begin, end;
};

// The query rows that see something of the page; the others lie at the ends of the block.
inline RowRange seeing_rows(const PageTask& task) {
  RowRange rows = {0, task.query_rows};
  const auto blind = [&](int row) {
    const SlotRange seen = visible_slots(task, row);
    return seen.begin >= seen.end;
  };
  while (rows.begin < rows.end && blind(rows.begin)) ++rows.begin;
  while (rows.begin < rows.end && blind(rows.end - 1)) --rows.end;
  return rows;
}

// out = factor * out + weights * values.
template <RowType kType>
inline void add_values(const PageTask& task, RowRange rows) {
  Product sums = {task.scores,       kKeys,        task.values,
                  task.value_stride, task.slots,   task.out,
                  task.value_stride, task.factors, 1};
  const int columns = static_cast<int>(task.value_stride);
  if (expand_values<kType>(task)) {
    return multiply<FloatTerms, true>(sums, rows.begin, rows.end, columns);
  }
  // Only visible values may contribute: row by row, over its own slots.
  for (int row = rows.begin; row < rows.end; ++row) {
    const SlotRange seen = visible_slots(task, row);
    sums.a = task.scores + seen.begin;
    sums.b = task.values + seen.begin * task.value_stride;
    sums.terms = seen.end - seen.begin;
    multiply<FloatTerms, true>(sums, row, row + 1, columns);
  }
}

template <RowType kType>
void prefill_page(const PageTask& task) {
  const RowRange rows = seeing_rows(task);
  if (rows.begin == rows.end) return;
  expand_keys<kType>(task);
  const Product scores = {task.q,      task.q_stride, task.keys, kKeys,     task.key_dim,
                          task.scores, kKeys,         nullptr,   task.scale};
  multiply<FloatTerms, false>(scores, rows.begin, rows.end, kKeys);
  for (int row = rows.begin; row < rows.end; ++row) weigh_row(task, row);
  add_values<kType>(task, rows);
}

#ifdef FASA_BF16_DOT
[[maybe_unused]] void prefill_pairs(const PageTask& task) {
  const RowRange rows = seeing_rows(task);
  if (rows.begin == rows.end) return;
  transpose_pairs(task);
  const Product scores = {task.q,      task.q_stride, task.keys, kKeys,     task.key_dim / 2,
                          task.scores, kKeys,         nullptr,   task.scale};
  multiply<PairTerms, false>(scores, rows.begin, rows.end, kKeys);
  for (int row = rows.begin; row < rows.end; ++row) weigh_row(task, row);
  add_values<kRowBF16>(task, rows);
}
#endif

}  // namespace
}  // namespace fasa::cpu
