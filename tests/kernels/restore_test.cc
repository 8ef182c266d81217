#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/row_case.h"

namespace fasa {
namespace {

RestoreParams restore_params(RowCase& cache, const RowStep& step) {
  return {cache.params(step, 0)};
}

// Truncating to any length gives the tail and protected rows of a new sequence of that length.
TEST(RestoreTest, AnyLengthIsAFreshAppend) {
  for (const bool on_device : {true, false}) {
    for (const int recent : {1, 16, 70}) {
      RowShape shape;
      shape.layers = 2, shape.key_dim = 34, shape.value_dim = 10;
      shape.recent = recent, shape.on_device = on_device;
      if (recent == 16) shape.values = SliceDType::kInt4, shape.fine = 8;
      if (recent == 70) shape.row = RowDType::kInt8, shape.value_dim = 32;
      RowCase whole(shape, {7}, 200);
      whole.advance({{0, 200}});
      for (const int length : {0, 1, 3, 5, 63, 64, 65, 127, 128, 130, 200}) {
        RowCase fresh(shape, {7}, 200);
        if (length > 0) fresh.advance({{0, length}});
        RowSequence& restored = whole.sequence(0);
        std::fill(restored.tail.begin(), restored.tail.end(), std::byte{0x77});
        std::fill(restored.protected_rows.begin(), restored.protected_rows.end(), std::byte{0xAB});
        restored.length = length;
        const RowStep step = whole.begin({{0, 0}});
        const KernelWork work = cpu::run(restore_params(whole, step));
        if (length > 0) {
          EXPECT_EQ(restored.tail, fresh.sequence(0).tail) << length;
        }
        EXPECT_EQ(restored.protected_rows, fresh.sequence(0).protected_rows) << length;
        EXPECT_EQ(work.h2d_bytes > 0, !on_device && length > 0);
      }
    }
  }
}

// Without slices there is no tail to rebuild.
TEST(RestoreTest, RowsOnly) {
  RowShape shape;
  shape.slices = false, shape.on_device = false;
  RowCase cache(shape, {1}, 200);
  cache.advance({{0, 150}});
  const std::vector<std::byte> protected_rows = cache.sequence(0).protected_rows;
  std::fill(cache.sequence(0).protected_rows.begin(), cache.sequence(0).protected_rows.end(),
            std::byte{0xAB});  // as new ones
  const RowStep step = cache.begin({{0, 0}});
  cpu::run(restore_params(cache, step));
  EXPECT_EQ(cache.sequence(0).protected_rows, protected_rows);
}

TEST(RestoreTest, SameAsReferenceAndLeavesHotRows) {
  RowShape shape;
  shape.layers = 3, shape.hot_rows = 5, shape.on_device = false;
  RowCase fast(shape, {1, 2}, 200);
  RowCase slow(shape, {1, 2}, 200);
  std::vector<std::vector<int32_t>> tables;
  for (RowCase* cache : {&fast, &slow}) {
    cache->advance({{0, 200}, {1, 90}});
    for (int s = 0; s < 2; ++s) {
      RowSequence& sequence = cache->sequence(s);
      for (size_t i = 0; i < sequence.hot_table.size(); ++i) {
        sequence.hot_table[i] = static_cast<int32_t>(i * 37 % 150);
      }
      tables.push_back(sequence.hot_table);
      sequence.length = 70 + s;
    }
  }
  const RowStep fast_step = fast.begin({{0, 0}, {1, 0}});
  const RowStep slow_step = slow.begin({{0, 0}, {1, 0}});
  cpu::run(restore_params(fast, fast_step));
  reference::restore(restore_params(slow, slow_step));
  for (int s = 0; s < 2; ++s) {
    EXPECT_EQ(fast.sequence(s).tail, slow.sequence(s).tail);
    EXPECT_EQ(fast.sequence(s).protected_rows, slow.sequence(s).protected_rows);
    EXPECT_EQ(fast.sequence(s).hot_table, tables[static_cast<size_t>(s)]);
  }
}

}  // namespace
}  // namespace fasa
