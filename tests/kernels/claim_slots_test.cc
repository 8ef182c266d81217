#include <gtest/gtest.h>

#include "tests/kernels/claim_slots_case.h"

namespace fasa {
namespace {

class ClaimSlotsTest : public ::testing::TestWithParam<ClaimSlotsSetting> {};

TEST_P(ClaimSlotsTest, SameAsReference) {
  expect_claims_slots_as_reference(GetParam(), cpu_row_kernels());
}

INSTANTIATE_TEST_SUITE_P(Settings, ClaimSlotsTest, ::testing::ValuesIn(claim_slots_settings()),
                         [](const auto& test) { return name_of(test.param); });

// A prediction that is selected counts as a hit, and its tile waits for the row; an unselected one
// is counted as unused.
TEST(ClaimSlotsTest, UsedPredictionsAreCountedAndNotReady) {
  ClaimSlotsSide side(100, cpu_row_kernels());
  side.begin();
  std::vector<int32_t> predictions(4 * 2);
  for (size_t head = 0; head < 4; ++head)
    predictions[2 * head] = 40, predictions[2 * head + 1] = 41;
  const std::vector<int32_t> sizes(4, 2);
  side.claim_slots({.step = {},
                    .step_number = StepNumber(1),
                    .max_rows = 5,
                    .selected_capacity = 2,
                    .sets = predictions.data(),
                    .selected_sizes = sizes.data()});
  EXPECT_EQ(side.counters.prefetched, 8u);
  std::vector<int32_t> sets;
  for (int head = 0; head < 4; ++head) {
    for (int i = 0; i < kClaimSet; ++i) sets.push_back(41 + 3 * i);  // contains 41, not 40
  }
  const std::vector<int32_t> selected_sizes(4, 20);
  side.resolve({.step = {},
                .step_number = StepNumber(1),
                .selected_capacity = kClaimSet,
                .sets = sets.data(),
                .selected_sizes = selected_sizes.data()});
  EXPECT_EQ(side.counters.prefetched_used, 4u);
  EXPECT_EQ(side.counters.hits, 4u);
  EXPECT_EQ(side.buffers.ready, (std::vector<uint8_t>{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_NEAR(side.counters.accuracy(), 0.5, 1e-9);
}

}  // namespace
}  // namespace fasa
