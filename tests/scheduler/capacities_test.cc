// Scratch reserved for a context serves every shorter context.
#include "scheduler/plan/capacities.h"

#include <gtest/gtest.h>

#include "tests/scheduler/drawn_settings.h"

namespace fasa::testing {
namespace {

TEST(PlannedCapacities, AShorterContextNeedsNoMoreOfAnything) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Draw draw(seed);
    const StepSettings settings = draw_settings(draw);
    const PredictionScratch predictions = {.max_depth = draw.of(0, 2), .writes_sets = draw.coin()};
    const int tokens = draw.of(1, 1200);
    const RowAccess access = settings.access_of(tokens, settings.max_hot_rows);
    const auto decode = [&](int64_t context) {
      return capacities_for(settings, {.context = context,
                                       .access = access,
                                       .hot_rows = settings.max_hot_rows,
                                       .predictions = predictions})
          .decode;
    };
    const DecodeCapacities reserved = decode(tokens);
    for (int context = 1; context <= tokens; ++context) {
      ASSERT_TRUE(reserved.covers(decode(context))) << context << " of " << tokens << " tokens";
      ASSERT_EQ(reserved.joined(decode(context)), reserved);
    }
  }
}

// Hot rows not used by sets are available to predictions: a longer set leaves fewer.
TEST(PlannedCapacities, PredictionsHaveTheHotRowsThatNoSetTakes) {
  const auto rows = [](DecodeCapacities sizes, int hot_rows) {
    sizes.hot_rows = hot_rows;
    return sizes.prediction_rows();
  };
  const DecodeCapacities sets = {.selected_capacity = 100,
                                 .predictions = true,
                                 .prediction_capacity = 125,
                                 .prediction_buffers = 2};
  EXPECT_EQ(rows(sets, 300), 125);
  EXPECT_EQ(rows(sets, 150), 50);
  EXPECT_EQ(rows(sets, 100), 0);
  EXPECT_EQ(rows(sets, 40), 0);
  EXPECT_EQ(rows({.selected_capacity = 100, .predictions = true}, 300), 200);
  EXPECT_EQ(rows({.selected_capacity = 100}, 300), 0);
}

}  // namespace
}  // namespace fasa::testing
