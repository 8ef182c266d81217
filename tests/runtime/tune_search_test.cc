#include "runtime/tune/tune_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "runtime/base/error.h"

namespace fasa {
namespace {

using Point = TuneSearch::Point;
using Objective = std::function<double(const Point&)>;

std::vector<Point> run(TuneSearch& search, const Objective& objective, size_t trials) {
  std::vector<Point> points;
  while (points.size() < trials) {
    const auto point = search.next();
    if (!point) break;
    points.push_back(*point);
    search.report(objective(*point));
  }
  return points;
}

// Each axis has its own best value.
double bowl(const Point& point) {
  const double best[] = {3, 1, 4};
  double cost = 1;
  for (size_t axis = 0; axis < point.size(); ++axis) {
    cost += std::abs(static_cast<double>(point[axis]) - best[axis]);
  }
  return cost;
}

TEST(TuneSearch, FindsTheBestOfSeparateAxesInOneRound) {
  TuneSearch search({5, 3, 6}, {0, 0, 0}, 1);
  run(search, bowl, 1 + 4 + 2 + 5);
  EXPECT_EQ(search.best(), (Point{3, 1, 4}));
  EXPECT_EQ(search.best_cost(), 1);
}

TEST(TuneSearch, TriesEveryPointOnceAndStops) {
  TuneSearch search({3, 2, 4}, {1, 1, 1}, 7);
  const auto points = run(search, bowl, 1000);
  EXPECT_EQ(points.front(), (Point{1, 1, 1}));
  EXPECT_EQ(points.size(), 24u);
  EXPECT_EQ(std::set<Point>(points.begin(), points.end()).size(), 24u);
  EXPECT_EQ(search.trials(), 24u);
  EXPECT_FALSE(search.next().has_value());
}

// No single axis improves on the start: only a restart leaves it.
TEST(TuneSearch, LeavesAPlaceThatIsOnlyLocallyBest) {
  const Objective valley = [](const Point& p) {
    return p == Point{0, 0} ? 2.0 : p == Point{3, 3} ? 1.0 : 5.0;
  };
  TuneSearch search({4, 4}, {0, 0}, 3);
  run(search, valley, 16);
  EXPECT_EQ(search.best(), (Point{3, 3}));
}

TEST(TuneSearch, IsTheSameForTheSameSeed) {
  TuneSearch first({4, 5, 3}, {0, 0, 0}, 11);
  TuneSearch second({4, 5, 3}, {0, 0, 0}, 11);
  TuneSearch other({4, 5, 3}, {0, 0, 0}, 12);
  const auto points = run(first, bowl, 40);
  EXPECT_EQ(points, run(second, bowl, 40));
  EXPECT_NE(points, run(other, bowl, 40));
}

TEST(TuneSearch, PointsThatCannotBeAreNeverBest) {
  const double never = std::numeric_limits<double>::infinity();
  TuneSearch search({3, 3}, {0, 0}, 5);
  EXPECT_EQ(search.best_cost(), never);
  run(
      search, [&](const Point& p) { return p[0] == 2 && p[1] == 1 ? 4.0 : never; }, 100);
  EXPECT_EQ(search.best(), (Point{2, 1}));
  EXPECT_EQ(search.best_cost(), 4);
}

TEST(TuneSearch, NoiseDoesNotDecide) {
  TuneSearch search({4}, {0}, 5);
  const double costs[] = {1, 0.9999, 1.0001, 0.9995};
  run(
      search, [&](const Point& p) { return costs[p[0]]; }, 4);
  EXPECT_EQ(search.best(), Point{0});
}

TEST(TuneSearch, AsksForAPointUntilItsCostIsKnown) {
  TuneSearch search({2}, {1}, 0);
  EXPECT_EQ(search.next(), search.next());
  search.report(1);
  EXPECT_EQ(*search.next(), Point{0});
  search.report(2);
  EXPECT_THROW(search.report(3), UsageError);
  EXPECT_EQ(search.best(), Point{1});
}

TEST(TuneSearch, RefusesAStartOutside) {
  EXPECT_THROW(TuneSearch({2, 2}, {0, 2}, 0), UsageError);
  EXPECT_THROW(TuneSearch({2, 2}, {0}, 0), UsageError);
}

}  // namespace
}  // namespace fasa
