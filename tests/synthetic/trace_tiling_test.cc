#include "runtime/synthetic/trace_tiling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/traces.h"

namespace fasa::testing {
namespace {

SelectPlan plan_of(int end, int budget, int sinks = 4, int recent = 16, int first = 0) {
  SelectPlan plan;
  plan.first = first;
  plan.end = end;
  plan.sinks_end = std::clamp(sinks, first, end);
  plan.recent_begin = std::max(plan.sinks_end, end - recent);
  plan.budget = std::min(budget, plan.visible());
  plan.need = plan.budget - (plan.sinks_end - plan.first) - (plan.end - plan.recent_begin);
  return plan;
}

std::vector<int32_t> true_set(const TraceTiling& tiling, const TraceSetId& id,
                              const SelectPlan& plan) {
  std::vector<int32_t> set(static_cast<size_t>(plan.budget) + 1, -7);
  tiling.true_set(id, plan, set.data());
  EXPECT_EQ(set.back(), -7) << "written beyond the set";
  set.pop_back();
  return set;
}

size_t shared(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  std::vector<int32_t> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both.size();
}

void expect_a_set(const std::vector<int32_t>& set, const SelectPlan& plan) {
  ASSERT_EQ(static_cast<int>(set.size()), plan.budget);
  EXPECT_TRUE(std::is_sorted(set.begin(), set.end(), std::less_equal<>()));
  EXPECT_GE(set.front(), plan.first);
  EXPECT_LT(set.back(), plan.end);
  for (int at = plan.first; at < plan.sinks_end; ++at) {
    EXPECT_TRUE(std::binary_search(set.begin(), set.end(), at)) << at;
  }
  for (int at = plan.recent_begin; at < plan.end; ++at) {
    EXPECT_TRUE(std::binary_search(set.begin(), set.end(), at)) << at;
  }
}

TEST(TraceTiling, SetsAreSetsOfTheRightSizeForAnyTarget) {
  const SelectionTrace trace = make_trace();
  for (const int tokens : {24, 100, 305, 1000, 5000, 131072}) {
    const TraceTiling tiling(trace, tokens, 0);
    for (const int budget : {21, 64, 256, 2048}) {
      for (const int step : {0, 1, 77}) {
        const SelectPlan plan = plan_of(tokens + step, budget);
        for (int layer = 0; layer < 9; ++layer) {
          SCOPED_TRACE(::testing::Message() << tokens << " " << budget << " " << layer);
          expect_a_set(true_set(tiling, {step, 0, layer, layer % 5}, plan), plan);
        }
      }
    }
  }
}

// Best first, outside the set, and most of them of the stretches that the trace ranks behind it.
TEST(TraceTiling, RunnersUpFollowTheRanking) {
  const SelectionTrace trace = make_trace();
  const int32_t last = trace.context(trace.steps() - 1);
  const TraceTiling tiling(trace, 100 * last, 0);
  SelectPlan plan = plan_of(100 * last, 18 + 20);
  const auto set = true_set(tiling, {}, plan);
  std::vector<int32_t> list(21, -7);
  for (const int size : {0, 5, 18}) {
    plan.runners_up = size;
    ASSERT_EQ(tiling.runners_up({}, plan, set, list.data()), size);
    EXPECT_EQ(list[20], -7);
    for (int i = 0; i < size; ++i) {
      EXPECT_FALSE(std::ranges::binary_search(set, list[static_cast<size_t>(i)]));
      EXPECT_EQ(list[static_cast<size_t>(i)] / 100,
                trace.runners_up(0, 0, 0)[static_cast<size_t>(i)]);
    }
  }
  plan.runners_up = 20;  // the trace has no more
  EXPECT_EQ(tiling.runners_up({}, plan, set, list.data()), 18);
  const SelectionTrace unranked = make_trace({.ranked = false});
  EXPECT_EQ(TraceTiling(unranked, 3000, 0).runners_up({}, plan, set, list.data()), 0);
}

TEST(TraceTiling, StretchesPositions) {
  const SelectionTrace trace = make_trace();
  const int32_t last = trace.context(trace.steps() - 1);
  const TraceTiling tiling(trace, 100 * last, 0);
  // As many positions as the trace's set has without sinks and recent ones: one of each stretch.
  const SelectPlan plan = plan_of(100 * last, 18 + 20);
  const auto set = true_set(tiling, {}, plan);
  for (const int32_t position : trace.true_set(0, 0, 0)) {
    if (position < 2 || position >= 296) continue;  // its sinks and recent
    const auto in_stretch = std::count_if(set.begin(), set.end(), [&](int32_t at) {
      return at >= 4 && at < plan.recent_begin && at / 100 == position;
    });
    EXPECT_EQ(in_stretch, 1) << position;
  }
}

TEST(TraceTiling, KeepsTheOverlapOfNeighbouringSteps) {
  const SelectionTrace trace = make_trace({.steps = 12, .keeps = 14});
  const TraceTiling tiling(trace, 20000, 0);
  // 18 tokens are selected in the trace, 14 stay; the target has 10 times as many.
  for (int step = 0; step < 40; ++step) {  // over the trace's end and back
    const auto first = true_set(tiling, {step, 0, 1, 0}, plan_of(20000 + step, 200));
    const auto second = true_set(tiling, {step + 1, 0, 1, 0}, plan_of(20001 + step, 200));
    const auto both = static_cast<double>(shared(first, second)) / 200;
    EXPECT_NEAR(both, 14.0 / 18, 0.08) << step;
  }
}

TEST(TraceTiling, GroupsRepeatAtOtherSteps) {
  const SelectionTrace trace = make_trace();
  const TraceTiling tiling(trace, 1000, 0);
  EXPECT_EQ(tiling.trace_layer(0), 0);
  EXPECT_EQ(tiling.trace_layer(2), 2);
  EXPECT_EQ(tiling.trace_layer(3), 1);  // later groups have no first layer
  EXPECT_EQ(tiling.trace_layer(4), 2);
  EXPECT_EQ(tiling.trace_layer(5), 1);
  EXPECT_EQ(tiling.trace_step({0, 0, 0, 0}), 0);
  std::set<int> steps;
  for (int layer = 0; layer < 11; layer += 2) steps.insert(tiling.trace_step({0, 0, layer, 0}));
  EXPECT_GT(steps.size(), 2u);
  EXPECT_NE(tiling.trace_step({0, 0, 0, 0}), tiling.trace_step({0, 0, 0, 2}));
  // Forwards, then backwards.
  for (int step = 0; step < 30; ++step) {
    EXPECT_EQ(std::abs(tiling.trace_step({step, 0, 0, 0}) - tiling.trace_step({step + 1, 0, 0, 0})),
              1);
  }
}

}  // namespace
}  // namespace fasa::testing
