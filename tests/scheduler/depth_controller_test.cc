#include "scheduler/prefetch/depth_controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

namespace fasa {
namespace {

// A simulated machine: a layer's compute time, its rows' transfer time, and the wait at each depth.
struct Machine {
  double compute = 100e-6;
  double transfer = 50e-6;
  double prediction_costs = 5e-6;
  double useful = 0.9;  // share of the predictions that come true

  LayerTimes at(int depth) const {
    if (depth == 0) return times(compute, transfer);
    const double late = std::max(0.0, transfer - depth * compute);
    return times(compute + prediction_costs, late + (1 - useful) * transfer);
  }
  LayerTimes times(double computed, double stall) const {
    return {.step = computed + stall, .compute = computed, .transfer = transfer, .stall = stall};
  }
};

// The depths chosen over this many measurements.
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
    const Machine machine{.transfer = transfer};
    run(controller, machine, 200);
    for (int i = 0; i < 600 && !controller.settled(); ++i) run(controller, machine, 1);
    EXPECT_EQ(controller.depth(), depth) << transfer;
    EXPECT_TRUE(controller.settled());
  }
}

TEST(DepthController, NothingToHide) {
  DepthController controller(4);
  run(controller, {.transfer = 2e-6}, 200);
  EXPECT_EQ(controller.depth(), 0);
}

TEST(DepthController, NothingIsPredictedWithoutASource) {
  DepthController controller(0);
  EXPECT_TRUE(controller.settled());
  run(controller, {.transfer = 1}, 50);
  EXPECT_EQ(controller.depth(), 0);
}

TEST(DepthController, UselessPredictionsAreGivenUpForLongerAndLonger) {
  DepthController controller(4);
  const auto depths = run(controller, {.useful = 0}, 4000);
  const auto with = std::count_if(depths.begin(), depths.end(), [](int d) { return d > 0; });
  EXPECT_GT(with, 4);
  EXPECT_LT(with, 100);
  EXPECT_EQ(depths.back(), 0);
}

TEST(DepthController, ComesBackWhenPredictionsGetBetter) {
  DepthController controller(4);
  run(controller, {.useful = 0}, 60);
  EXPECT_EQ(controller.depth(), 0);
  const auto depths = run(controller, {.useful = 0.9}, 300);
  EXPECT_GT(std::count(depths.begin(), depths.end(), 1), 200);
}

TEST(DepthController, FollowsTheTimes) {
  DepthController controller(4);
  run(controller, {.transfer = 90e-6}, 60);
  ASSERT_EQ(controller.depth(), 1);
  run(controller, {.transfer = 250e-6}, 60);  // at once: the transfer is no longer hidden
  EXPECT_EQ(controller.depth(), 3);
  // later, when its turn comes: a smaller depth suffices
  run(controller, {.transfer = 50e-6}, 400);
  EXPECT_EQ(controller.depth(), 1);
}

// Steps that get shorter because hot rows fill: a depth tried later gets no credit for it.
TEST(DepthController, FillingRowsAreNoMeritOfPredictions) {
  for (const double half_life : {2.0, 5.0, 20.0, 60.0}) {
    DepthController controller(4);
    int with = 0;
    for (int i = 0; i < 2000; ++i) {
      Machine machine{.prediction_costs = 10e-6, .useful = 0.1};
      machine.transfer *= 0.4 + 3 * std::exp2(-i / half_life);
      with += controller.depth() > 0;
      controller.measured(controller.depth(), machine.at(controller.depth()));
    }
    EXPECT_EQ(controller.depth(), 0) << half_life;
    EXPECT_LT(with, 60) << half_life;
  }
}

// The mean step of a long run against that of the best constant depth. As in the runtime, every
// eighth step is measured once the depth has settled.
TEST(DepthController, IsNeverMuchSlowerThanTheBestDepth) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> share(0, 1);
  for (int trial = 0; trial < 500; ++trial) {
    const Machine machine{.transfer = std::exp2(share(random) * 7 - 5) * 100e-6,
                          .prediction_costs = share(random) * 30e-6,
                          .useful = share(random)};
    std::vector<double> noise(20'000);
    for (double& factor : noise) factor = 1 + 0.02 * (share(random) - 0.5);
    const auto step = [&](int depth, size_t i) {
      const LayerTimes times = machine.at(depth);
      return machine.times(times.compute, times.stall * noise[i]);
    };
    DepthController controller(4);
    double automatic = 0;
    std::array<double, 3> constant{};
    for (size_t i = 0; i < noise.size(); ++i) {
      const LayerTimes times = step(controller.depth(), i);
      automatic += times.compute + times.stall;
      if (!controller.settled() || i % 8 == 0) controller.measured(controller.depth(), times);
      for (int depth = 0; depth < 3; ++depth) {
        const LayerTimes other = step(depth, i);
        constant[static_cast<size_t>(depth)] += other.compute + other.stall;
      }
    }
    EXPECT_LE(automatic, 1.01 * *std::min_element(constant.begin(), constant.end()))
        << "transfer " << machine.transfer << ", predictions cost " << machine.prediction_costs
        << ", useful " << machine.useful << ", ends at " << controller.depth();
  }
}

TEST(DepthController, MostStepsPredictWhereItPays) {
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
