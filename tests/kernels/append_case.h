// Shared by the tests of every append: shapes, and the comparison of two sequences.
#pragma once

#include <gtest/gtest.h>

#include "tests/kernels/row_case.h"

namespace fasa {

inline std::vector<RowShape> append_shapes() {
  std::vector<RowShape> all;
  const auto add = [&all](auto change) {
    RowShape shape;
    change(shape);
    for (const bool on_device : {true, false}) {
      shape.on_device = on_device;
      all.push_back(shape);
    }
  };
  add([](RowShape& s) { s.layers = 2; });
  add([](RowShape& s) { s.key_dim = 2, s.value_dim = 6, s.slice = SliceDType::kF32; });
  add([](RowShape& s) { s.key_dim = 80, s.value_dim = 33, s.slice = SliceDType::kInt8; });
  add([](RowShape& s) { s.row = DType::kF32, s.slice = SliceDType::kBF16, s.recent = 1; });
  add([](RowShape& s) { s.row = DType::kF16, s.slice = SliceDType::kInt4, s.sinks = 0; });
  add([](RowShape& s) { s.input = DType::kBF16, s.row = DType::kF32, s.recent = 70; });
  add([](RowShape& s) { s.input = DType::kF16, s.row = DType::kF16, s.sinks = 100; });
  add([](RowShape& s) { s.slices = false; });
  add([](RowShape& s) { s.layers = 2, s.values = SliceDType::kInt2; });
  add([](RowShape& s) { s.value_dim = 33, s.values = SliceDType::kInt2; });
  add([](RowShape& s) { s.value_dim = 130, s.row = DType::kF16, s.values = SliceDType::kInt4; });
  add([](RowShape& s) { s.value_dim = 6, s.row = DType::kF32, s.values = SliceDType::kInt8; });
  add([](RowShape& s) { s.fine = 16, s.layers = 2, s.values = SliceDType::kInt2; });
  add([](RowShape& s) { s.row = RowDType::kInt8, s.layers = 2, s.fine = 6; });
  add([](RowShape& s) { s.row = RowDType::kInt8, s.input = DType::kBF16, s.slices = false; });
  add([](RowShape& s) {
    s.row = RowDType::kInt8, s.key_dim = 81, s.value_dim = 33, s.values = SliceDType::kInt2;
  });
  add([](RowShape& s) {
    s.row = RowDType::kInt8, s.key_dim = s.value_dim = 34, s.slice = SliceDType::kF32;
  });
  return all;
}

// Compares the bytes of pages [0, length), the slices of sealed pages, the tail and the protected
// rows.
inline void expect_same(const RowCase& owner, RowSequence& a, RowSequence& b, bool protected_rows) {
  ASSERT_EQ(a.length, b.length);
  const CacheLayout& layout = owner.layout();
  for (int position = 0; position < a.length; ++position) {
    const size_t page = static_cast<size_t>(position / kPageTokens);
    for (int64_t head = 0; head < layout.heads(); ++head) {
      const int64_t at =
          layout.row_offset(static_cast<int>(head) / layout.kv_heads,
                            static_cast<int>(head) % layout.kv_heads, position % kPageTokens);
      ASSERT_EQ(std::memcmp(a.rows[page].data() + at, b.rows[page].data() + at,
                            static_cast<size_t>(layout.row.bytes())),
                0)
          << "row of position " << position << ", head " << head;
    }
  }
  for (int page = 0; page < a.length / kPageTokens; ++page) {
    EXPECT_EQ(a.slices[static_cast<size_t>(page)], b.slices[static_cast<size_t>(page)])
        << "slices of page " << page;
  }
  EXPECT_EQ(a.tail, b.tail);
  for (int position = 0; position < a.length && protected_rows; ++position) {
    if (position >= layout.sinks && position < a.length - layout.recent) continue;
    for (int64_t head = 0; head < layout.heads(); ++head) {
      const int64_t at = layout.protected_offset(static_cast<int>(head) / layout.kv_heads,
                                                 static_cast<int>(head) % layout.kv_heads,
                                                 layout.protected_slot(position));
      ASSERT_EQ(std::memcmp(a.protected_rows.data() + at, b.protected_rows.data() + at,
                            static_cast<size_t>(layout.row.bytes())),
                0)
          << "protected row of position " << position << ", head " << head;
    }
  }
}

}  // namespace fasa
