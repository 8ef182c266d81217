// The bodies of write-back and restore give the reference's bytes.
#include "kernels/cuda/restore_inl.h"

#include <gtest/gtest.h>

#include "kernels/cuda/write_back_inl.h"
#include "tests/kernels/row_case.h"
#include "tests/simt/simt_case.h"

namespace fasa {
namespace {

class RestoreBody : public ::testing::TestWithParam<SimtRun> {
 protected:
  SimtInterpreter interpreter_{GetParam().order, GetParam().seed};
};

// Any length and any dtypes: tail and protected rows equal the reference's.
TEST_P(RestoreBody, SameAsTheReference) {
  for (const SliceDType slice : {SliceDType::kInt2, SliceDType::kF32}) {
    for (const RowDType row : kRowDTypes) {
      for (const int recent : {1, 16, 70}) {
        RowShape shape;
        shape.layers = 2, shape.key_dim = 34, shape.value_dim = row.is_coded() ? 34 : 10;
        shape.slice = slice, shape.row = row, shape.recent = recent;
        shape.on_device = false;
        if (recent == 16) shape.values = SliceDType::kInt4;
        if (slice == SliceDType::kInt2) shape.fine = recent == 1 ? 34 : 4;
        RowCase fast(shape, {1, 2}, 200), slow(shape, {1, 2}, 200);
        for (RowCase* cache : {&fast, &slow}) cache->advance({{0, 200}, {1, 90}});
        for (const int length : {200, 130, 64, 63, 3, 0}) {
          for (RowCase* cache : {&fast, &slow}) {
            for (int s = 0; s < 2; ++s) {
              RowSequence& sequence = cache->sequence(s);
              sequence.length = std::min(length + s, sequence.length);
              std::fill(sequence.tail.begin(), sequence.tail.end(), std::byte{0x77});
            }
          }
          const RowStep step = fast.begin({{0, 0}, {1, 0}}), other = slow.begin({{0, 0}, {1, 0}});
          cuda::start(RestoreParams{fast.params(step, 0)}, SimtLauncher(interpreter_));
          reference::restore({slow.params(other, 0)});
          for (int s = 0; s < 2; ++s) {
            ASSERT_EQ(fast.sequence(s).tail, slow.sequence(s).tail) << length;
            ASSERT_EQ(fast.sequence(s).protected_rows, slow.sequence(s).protected_rows) << length;
          }
        }
      }
    }
  }
}

TEST_P(RestoreBody, RowsOnly) {
  RowShape shape;
  shape.slices = false, shape.on_device = true;
  RowCase cache(shape, {1}, 200);
  cache.advance({{0, 150}});
  const RowStep step = cache.begin({{0, 0}});
  const RowSequence before = cache.sequence(0);
  cuda::start(RestoreParams{cache.params(step, 0)}, SimtLauncher(interpreter_));
  const RowSequence& after = cache.sequence(0);
  EXPECT_EQ(after.rows, before.rows);
  EXPECT_EQ(after.tail, before.tail);
  EXPECT_EQ(after.protected_rows, before.protected_rows);
  EXPECT_EQ(after.hot_table, before.hot_table);
}

// New rows of prefills and decodes of one layer reach the host's pages; all other bytes stay.
TEST_P(RestoreBody, WriteBackSameAsTheReference) {
  RowShape shape;
  shape.layers = 2, shape.kv_heads = 3, shape.key_dim = 20, shape.value_dim = 36;
  for (const bool local : {false, true}) {
    shape.on_device = shape.written_back = local;
    RowCase fast(shape, {1, 2, 3}, 300), slow(shape, {1, 2, 3}, 300);
    for (const std::vector<Advance>& advances :
         {std::vector<Advance>{{0, 70}, {1, 1}, {2, 150}},
          {{0, 1, StepMode::kDecode}, {1, 130}, {2, 1, StepMode::kDecode}},
          {{0, 1, StepMode::kDecode}, {1, 1, StepMode::kDecode}}}) {
      for (RowCase* cache : {&fast, &slow}) {
        RowStep step = cache->begin(advances);
        for (int layer = 0; layer < shape.layers; ++layer) {
          cache->fill(step, layer);
          cpu::run(cache->append_params(step, layer));
          const WriteBackParams params = {cache->params(step, layer)};
          if (cache == &fast) {
            cuda::start(params, SimtLauncher(interpreter_));
          } else {
            reference::write_back(params);
          }
        }
        cache->commit(advances);
      }
      for (int s = 0; s < 3; ++s) {
        EXPECT_EQ(fast.sequence(s).rows, slow.sequence(s).rows);
        EXPECT_EQ(fast.sequence(s).homes, slow.sequence(s).homes);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, RestoreBody, ::testing::ValuesIn(simt_runs()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace fasa
