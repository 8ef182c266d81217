#include "runtime/eval/interval.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace fasa {
namespace {

// Values computed by hand from the formula, with z = 1.959964.
TEST(WilsonInterval, KnownValues) {
  const Interval half = wilson_interval(5, 10);
  EXPECT_NEAR(half.low, 0.23659, 1e-5);
  EXPECT_NEAR(half.high, 0.76341, 1e-5);
  const Interval most = wilson_interval(39, 40);
  EXPECT_NEAR(most.low, 0.87120, 1e-4);
  EXPECT_NEAR(most.high, 0.99557, 1e-4);
}

TEST(WilsonInterval, EndsStayWithinAShare) {
  EXPECT_EQ(wilson_interval(0, 7).low, 0);
  EXPECT_GT(wilson_interval(0, 7).high, 0.3);
  EXPECT_EQ(wilson_interval(7, 7).high, 1);
  EXPECT_EQ(wilson_interval(0, 0).low, 0);
  EXPECT_EQ(wilson_interval(0, 0).high, 1);
}

// Newcombe's rule by hand, from Wilson's intervals of 1 of 20 lost and 2 of 10 gained.
TEST(RetainedInterval, KnownValues) {
  const Interval losses = wilson_interval(1, 20), gains = wilson_interval(2, 10);
  const Interval kept = retained_interval(1, 2, 20, 30);
  EXPECT_NEAR(kept.low, 1.05 - std::hypot(losses.high - 0.05, (0.2 - gains.low) / 2), 1e-12);
  EXPECT_NEAR(kept.high, 1.05 + std::hypot(0.05 - losses.low, (gains.high - 0.2) / 2), 1e-12);
}

TEST(RetainedInterval, EqualAnswersStillLeaveDoubt) {
  const Interval few = retained_interval(0, 0, 10, 20), many = retained_interval(0, 0, 1000, 1000);
  EXPECT_LT(few.low, 0.8);
  EXPECT_GT(few.high, 1.1);
  EXPECT_GT(many.low, 0.99);
  EXPECT_EQ(many.high, 1) << "nothing is left to gain";
  EXPECT_EQ(retained_interval(10, 0, 10, 10).low, 0);
}

TEST(MeanInterval, OneValueHasNoWidth) {
  const Interval one = mean_interval(std::array{3.0});
  EXPECT_EQ(one.low, 3);
  EXPECT_EQ(one.high, 3);
}

TEST(MeanInterval, KnownValues) {
  // Mean 2, variance 1, standard error 1/sqrt(3).
  const Interval interval = mean_interval(std::array{1.0, 2.0, 3.0});
  EXPECT_NEAR(interval.low, 2 - 1.959964 * 0.577350, 1e-5);
  EXPECT_NEAR(interval.high, 2 + 1.959964 * 0.577350, 1e-5);
}

}  // namespace
}  // namespace fasa
