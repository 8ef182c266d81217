#include "scheduler/prefetch/depth_controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace fasa {
namespace {

// A machine: a layer's compute, its rows' transfer, and what of it is waited for at a depth.
struct Machine {
  double compute = 100e-6;
  double transfer = 50e-6;
  double guess_costs = 5e-6;
  double useful = 0.9;  // share of the guesses that come true

  LayerTimes at(int depth) const {
    if (depth == 0) return {compute, transfer, transfer};
    const double late = std::max(0.0, transfer - depth * compute);
    return {compute + guess_costs, transfer, late + (1 - useful) * transfer};
  }
};

// The depths of so many measurements.
std::vector<int> run(DepthController& controller, const Machine& machine, int measurements) {
  std::vector<int> depths;
  for (int i = 0; i < measurements; ++i) {
    depths.push_back(controller.depth());
    controller.measured(controller.depth(), machine.at(controller.depth()));
  }
  return depths;
}

TEST(DepthController, LeastDepthThatHidesTheTransfer) {
  for (const auto& [transfer, depth] :
       {std::pair(50e-6, 1), std::pair(150e-6, 2), std::pair(380e-6, 4), std::pair(3e-3, 4)}) {
    DepthController controller(4);
    EXPECT_EQ(controller.depth(), 0);
    EXPECT_FALSE(controller.settled());
    run(controller, {.transfer = transfer}, 20);
    EXPECT_EQ(controller.depth(), depth) << transfer;
    EXPECT_TRUE(controller.settled());
  }
}

TEST(DepthController, NothingToHide) {
  DepthController controller(4);
  run(controller, {.transfer = 2e-6}, 200);
  EXPECT_EQ(controller.depth(), 0);
}

TEST(DepthController, NobodyGuesses) {
  DepthController controller(0);
  EXPECT_TRUE(controller.settled());
  run(controller, {.transfer = 1}, 50);
  EXPECT_EQ(controller.depth(), 0);
}

TEST(DepthController, UselessGuessesAreGivenUpForLongerAndLonger) {
  DepthController controller(4);
  const auto depths = run(controller, {.useful = 0}, 4000);
  const auto with = std::count_if(depths.begin(), depths.end(), [](int d) { return d > 0; });
  EXPECT_GT(with, 4);
  EXPECT_LT(with, 100);
  EXPECT_EQ(depths.back(), 0);
}

TEST(DepthController, ComesBackWhenGuessesGetBetter) {
  DepthController controller(4);
  run(controller, {.useful = 0}, 60);
  EXPECT_EQ(controller.depth(), 0);
  const auto depths = run(controller, {.useful = 0.9}, 300);
  EXPECT_GT(std::count(depths.begin(), depths.end(), 1), 200);
}

TEST(DepthController, FollowsTheTimesButNotTheNoise) {
  DepthController controller(4);
  run(controller, {.transfer = 90e-6}, 30);
  ASSERT_EQ(controller.depth(), 1);
  for (int i = 0; i < 40; ++i) {  // around the edge of depth 1 and 2
    const Machine machine{.transfer = i % 2 == 0 ? 90e-6 : 104e-6};
    controller.measured(controller.depth(), machine.at(controller.depth()));
    EXPECT_EQ(controller.depth(), 1);
  }
  run(controller, {.transfer = 250e-6}, 40);
  EXPECT_EQ(controller.depth(), 3);
  run(controller, {.transfer = 190e-6}, 10);
  EXPECT_EQ(controller.depth(), 3);  // would just about fit one less: not worth a change
  run(controller, {.transfer = 50e-6}, 60);
  EXPECT_EQ(controller.depth(), 1);
}

TEST(DepthController, MostStepsGuessWhereItPays) {
  DepthController controller(4);
  const auto depths = run(controller, {}, 1000);
  EXPECT_GT(std::count(depths.begin(), depths.end(), 1), 900);
}

TEST(DepthController, StaleAndEmptyMeasurementsSayNothing) {
  DepthController controller(4);
  for (int i = 0; i < 50; ++i) {
    controller.measured(2, {1e-4, 1e-3, 1e-3});
    controller.measured(0, {});
  }
  EXPECT_EQ(controller.depth(), 0);
  EXPECT_FALSE(controller.settled());
}

}  // namespace
}  // namespace fasa
