#include <gtest/gtest.h>

#include "tests/kernels/speculate_case.h"

namespace fasa {
namespace {

class SpeculateTest : public testing::TestWithParam<SpeculateSetting> {};

TEST_P(SpeculateTest, SameAsReference) {
  expect_speculates_as_reference(GetParam(), cpu_row_kernels());
}

INSTANTIATE_TEST_SUITE_P(Settings, SpeculateTest, testing::ValuesIn(speculate_settings()),
                         [](const auto& test) { return name_of(test.param); });

TEST(SpeculateTest, RememberedRowsComeBack) { expect_remembered_rows_come_back(cpu_row_kernels()); }

// A guess that comes true is a hit whose tile waits; one that does not is nobody's.
TEST(SpeculateTest, UsedGuessesAreCountedAndNotReady) {
  SpeculateSide side(100, cpu_row_kernels());
  side.begin();
  std::vector<int32_t> guesses(4 * 2);
  for (size_t head = 0; head < 4; ++head) guesses[2 * head] = 40, guesses[2 * head + 1] = 41;
  const std::vector<int32_t> sizes(4, 2);
  side.speculate({.step = {},
                  .stamp = StepStamp(1),
                  .max_rows = 5,
                  .set_capacity = 2,
                  .sets = guesses.data(),
                  .set_sizes = sizes.data()});
  EXPECT_EQ(side.counters.speculated, 8u);
  std::vector<int32_t> sets;
  for (int head = 0; head < 4; ++head) {
    for (int i = 0; i < kSpeculateSet; ++i) sets.push_back(41 + 3 * i);  // has 41 and not 40
  }
  const std::vector<int32_t> set_sizes(4, 20);
  side.resolve({.step = {},
                .stamp = StepStamp(1),
                .set_capacity = kSpeculateSet,
                .sets = sets.data(),
                .set_sizes = set_sizes.data()});
  EXPECT_EQ(side.counters.speculated_used, 4u);
  EXPECT_EQ(side.counters.hits, 4u);
  EXPECT_EQ(side.buffers.ready, (std::vector<uint8_t>{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_NEAR(side.counters.precision(), 0.5, 1e-9);
}

}  // namespace
}  // namespace fasa
