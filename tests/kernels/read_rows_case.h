// Rows read back as tensors; for every device's kernel.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "tests/kernels/row_case.h"

namespace fasa::read_rows_case {

using ReadRows = std::function<void(const ReadRowsParams&)>;

// Keys, then values, as f32; elements that are not written keep their contents.
inline std::vector<float> read(RowCase& cache, int layer, int first, int tokens, DType dtype,
                               const ReadRows& kernel) {
  const CacheLayout& layout = cache.layout();
  const int64_t keys = int64_t{tokens} * layout.kv_heads * layout.row.key_dim;
  const int64_t values = int64_t{tokens} * layout.kv_heads * layout.row.value_dim;
  const auto bytes = static_cast<size_t>(dtype_bytes(dtype));
  std::vector<std::byte> k(static_cast<size_t>(keys) * bytes),
      v(static_cast<size_t>(values) * bytes);
  kernel({.layout = layout,
          .layer = layer,
          .row_blocks = cache.sequence(0).row_blocks.data(),
          .first = first,
          .access = RowAccess::kLocal,
          .k = TensorView::dense(k.data(), dtype, tokens, layout.kv_heads, layout.row.key_dim),
          .v = TensorView::dense(v.data(), dtype, tokens, layout.kv_heads, layout.row.value_dim)});
  std::vector<float> all;
  for (int64_t i = 0; i < keys; ++i) all.push_back(load_element(dtype, k.data(), i));
  for (int64_t i = 0; i < values; ++i) all.push_back(load_element(dtype, v.data(), i));
  return all;
}

inline void expect_same_as_the_processors(const ReadRows& kernel) {
  for (const RowDType row : kRowDTypes) {
    RowShape shape;
    shape.layers = 2, shape.kv_heads = 3, shape.key_dim = 34;
    shape.value_dim = row.is_coded() ? 34 : 10;
    shape.row = row;
    RowCase cache(shape, {1}, 200);
    cache.advance({{0, 150}});
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const auto& [first, tokens] : {std::pair{0, 150}, {63, 2}, {64, 64}, {149, 1}, {5, 0}}) {
        EXPECT_EQ(read(cache, 1, first, tokens, dtype, kernel),
                  read(cache, 1, first, tokens, dtype, cpu::run<ReadRowsParams>))
            << first << " " << tokens;
      }
    }
  }
}

}  // namespace fasa::read_rows_case
