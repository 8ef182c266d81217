// Bytes that kernels read and write in device memory and over the link, as a function of layout and
// shape. The kernels report these bytes, the emulated device's clock charges them, and the cost
// model predicts with them: one definition, so that prediction and measurement cannot differ.
// Queries, partial softmaxes and scores that never leave a kernel are not counted. Prompts are
// bound by operations of matrix products, which are counted for them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/layout.h"
#include "runtime/base/dtype.h"

namespace fasa {

// Rows moved once: attended to, gathered, written back.
inline uint64_t rows_bytes(const CacheLayout& layout, int64_t rows) {
  return static_cast<uint64_t>(rows * layout.row.bytes());
}

// New tokens of one KV head: key and value read, the row written, its slice into the tail.
inline uint64_t append_bytes(const CacheLayout& layout, int64_t tokens) {
  const int64_t tail = layout.slice.dims > 0 ? layout.slice.tail().page_bytes() / kPageTokens : 0;
  const int64_t values = layout.values.tail().page_bytes() / kPageTokens;
  return static_cast<uint64_t>(tokens * (2 * layout.row.bytes() + tail + values));
}
// A full page of one KV head: the tail read, its codes written. Every kPageTokens-th token.
inline uint64_t seal_bytes(const CacheLayout& layout) {
  if (layout.slice.dims == 0) return 0;
  return static_cast<uint64_t>(layout.slice.tail().page_bytes() + layout.slice.page_bytes() +
                               layout.values.tail().page_bytes() + layout.values.page_bytes());
}

// One page of slices of one KV head. `format` is the tail's for the newest page, and one of fewer
// dimensions if only a prefix is scored.
inline uint64_t scored_page_bytes(const SliceFormat& format) {
  return static_cast<uint64_t>(format.page_bytes()) + (is_coded(format.dtype) ? sizeof(float) : 0);
}
// All pages that hold visible positions [first, end), the last one being the tail; one KV head. A
// rescan, if the sampled threshold kept too few candidates, reads them again.
inline uint64_t select_bytes(const SliceFormat& format, int64_t first, int64_t end) {
  const int64_t last = (end - 1) / kPageTokens;
  return static_cast<uint64_t>(last - first / kPageTokens) * scored_page_bytes(format) +
         scored_page_bytes(format.tail());
}

// A wave of set entries of `heads` heads: reads positions, writes addresses, reads the table of hot
// rows with `slots` slots per head.
inline uint64_t resolve_bytes(int64_t heads, int64_t wave, int64_t slots) {
  const int64_t entry = sizeof(int32_t) + sizeof(void*);
  const int64_t table = 2 * slots * int64_t{sizeof(int32_t)};
  return static_cast<uint64_t>(heads * (wave * entry + table));
}

// Tokens of a low-bit set, one KV head: the selection writes position and scores; attention reads
// them, the codes and, as if each token were in a page of its own, their parameters.
inline uint64_t low_bit_bytes(const CacheLayout& layout, int64_t tokens) {
  const int64_t entry = int64_t{sizeof(int32_t)} + layout.gqa_group * int64_t{sizeof(float)};
  const int64_t codes = layout.values.groups() * int64_t{4};
  const int64_t parameters = layout.values.padded_dims() * int64_t{2} + int64_t{sizeof(float)};
  return static_cast<uint64_t>(tokens * (2 * entry + codes + parameters));
}

// Scores of `pages` pages of one KV head, for a low-bit set attended to by page: selection writes
// them, attention reads them.
inline uint64_t page_scores_bytes(const CacheLayout& layout, int64_t pages) {
  constexpr int64_t kPage = kPageTokens * int64_t{sizeof(int16_t)} + int64_t{sizeof(float)};
  return static_cast<uint64_t>(pages * layout.gqa_group * kPage);
}
// The value codes of all pages that hold visible positions [first, end), the last one being the
// tail; one KV head.
inline uint64_t value_pages_bytes(const CacheLayout& layout, int64_t first, int64_t end) {
  return select_bytes(layout.values, first, end);
}

// Bytes that attention writes for `queries` query vectors.
inline uint64_t output_bytes(const CacheLayout& layout, int64_t queries, DType dtype) {
  return static_cast<uint64_t>(queries * layout.row.value_dim * dtype_bytes(dtype));
}

// The sum of clamp(first + i, low, high) over i = 0 ... count - 1.
inline int64_t clamped_sum(int64_t first, int64_t count, int64_t low, int64_t high) {
  const int64_t below = std::clamp<int64_t>(low - first, 0, count);
  const int64_t within = std::clamp<int64_t>(high - first, below, count) - below;
  const int64_t middle = within * (first + below) + within * (within - 1) / 2;
  return below * low + middle + (count - below - within) * high;
}
// Pairs of a query and a key that exact causal attention of the tokens [start, start + tokens) has
// with the positions [begin, end), for one query head. `window`: tokens that are seen; 0: all.
inline int64_t causal_pairs(int64_t start, int64_t tokens, int64_t window, int64_t begin,
                            int64_t end) {
  if (end <= begin) return 0;
  const int64_t hidden =
      window > 0 ? clamped_sum(start + 1 - window, tokens, begin, end) : tokens * begin;
  return clamped_sum(start + 1, tokens, begin, end) - hidden;
}
// A pair takes a product with the key, and one with the value. For results in f32, matrix units
// take a weight of the softmax as two numbers of the rows' type
// (kernels/cuda/prefill_weights_inl.h), and so two products with the value, unless rows are in f32.
inline uint64_t pair_operations(const CacheLayout& layout, DType out) {
  const int64_t parts = out == DType::kF32 && layout.row.dtype != RowDType::kF32 ? 2 : 1;
  return static_cast<uint64_t>(2 * layout.row.key_dim + 2 * parts * layout.row.value_dim);
}
// The softmax states of `tokens` tokens, stored after a wave of pages or loaded before the next.
inline uint64_t state_bytes(const CacheLayout& layout, int64_t tokens) {
  const int64_t floats = layout.row.value_dim + 2;  // maximum, sum, values
  return static_cast<uint64_t>(tokens * layout.query_heads() * floats) * sizeof(float);
}

}  // namespace fasa
