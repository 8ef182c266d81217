#include "kernels/cuda/gather_inl.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "tests/simt/simt_case.h"
#include "tests/support/reference/kernels.h"

namespace fasa {
namespace {

class GatherBody : public ::testing::TestWithParam<SimtRun> {
 protected:
  SimtInterpreter interpreter_{GetParam().order, GetParam().seed};
};

struct Shape {
  int count;
  int kv_heads;
  int wave;
  int width;  // elements of a key, and of a value
  int lanes;
};

// Rows from a shuffled order to another one; heads without rows, with some, and with a whole wave.
TEST_P(GatherBody, EveryLaneMovesItsHeadsAndNothingElse) {
  for (const Shape& shape : {Shape{1, 1, 1, 8, 1}, Shape{2, 3, 40, 128, 1}, Shape{3, 2, 33, 20, 4},
                             Shape{1, 2, 300, 72, 2}, Shape{700, 2, 2, 16, 1}}) {
    std::mt19937 random(3);
    CacheLayout layout;
    layout.kv_heads = shape.kv_heads;
    layout.row = {DType::kBF16, shape.width, shape.width};
    const auto heads = static_cast<size_t>(shape.count * shape.kv_heads);
    const size_t rows = heads * static_cast<size_t>(shape.wave);
    const auto row_bytes = static_cast<size_t>(layout.row.bytes());
    std::vector<simt::Word16> source(rows * row_bytes / 16);
    for (simt::Word16& word : source) {
      for (uint32_t& part : word.words) part = static_cast<uint32_t>(random());
    }
    std::vector<simt::Word16> moved(source.size(), simt::Word16{{1, 2, 3, 4}});
    std::vector<simt::Word16> expected = moved;
    std::vector<size_t> order(rows);
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::vector<int32_t> counts(heads);
    for (int32_t& count : counts) {
      count = std::min(
          shape.wave,
          static_cast<int>(random() % static_cast<unsigned>(shape.wave + shape.wave / 3 + 1)));
    }
    counts[0] = 0;
    counts.back() = shape.wave;
    const auto items_to = [&](std::vector<simt::Word16>& to) {
      std::vector<FetchItem> items(rows);
      for (size_t i = 0; i < rows; ++i) {
        items[i] = {reinterpret_cast<const std::byte*>(source.data()) + i * row_bytes,
                    reinterpret_cast<std::byte*>(to.data()) + order[i] * row_bytes};
      }
      return items;
    };
    const std::vector<FetchItem> slow = items_to(expected);
    reference::gather({layout, shape.count, shape.wave, slow.data(), counts.data()});
    const std::vector<FetchItem> fast = items_to(moved);
    for (int lane = 0; lane < shape.lanes; ++lane) {
      cuda::start(GatherParams{layout, shape.count, shape.wave, fast.data(), counts.data(), lane,
                               shape.lanes},
                  SimtLauncher(interpreter_));
    }
    EXPECT_EQ(std::memcmp(moved.data(), expected.data(), rows * row_bytes), 0);
  }
}

TEST_P(GatherBody, NothingToDo) {
  CacheLayout layout;
  layout.kv_heads = 2;
  layout.row = {DType::kBF16, 16, 16};
  const auto row_bytes = static_cast<size_t>(layout.row.bytes());
  const std::vector<std::byte> from(2 * row_bytes, std::byte{0x5a});
  std::vector<std::byte> to(2 * row_bytes, std::byte{0xc3});
  const std::vector<std::byte> before = to;
  // Items of the step before; this step has none.
  const FetchItem items[2] = {{from.data(), to.data()},
                              {from.data() + row_bytes, to.data() + row_bytes}};
  const int32_t counts[2] = {0, 0};
  cuda::start(GatherParams{layout, 1, 1, items, counts, 0, 1}, SimtLauncher(interpreter_));
  cuda::start(GatherParams{layout, 1, 1, items, counts, 5, 7}, SimtLauncher(interpreter_));
  EXPECT_EQ(to, before);
}

INSTANTIATE_TEST_SUITE_P(Orders, GatherBody, ::testing::ValuesIn(simt_runs()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace fasa
