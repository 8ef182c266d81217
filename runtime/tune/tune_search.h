// Which settings to try next, from what those tried so far cost. Knows neither the settings nor a
// clock: a point names a value on each axis by its index.
//
// Coordinate descent: all values of one axis, then of the next, each beside the best of the others;
// when a whole round has improved nothing, again from a random point. No point is asked for twice.
// The same seed and costs give the same points; costs that differ by less than a thousandth count
// as equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <vector>

namespace fasa {

class TuneSearch {
 public:
  using Point = std::vector<size_t>;

  // `sizes`: values of each axis, at least one; `start` is the first point. Throws UsageError for a
  // start outside.
  TuneSearch(std::vector<size_t> sizes, Point start, uint64_t seed);

  // None: every point was tried. The same point until its cost was reported.
  std::optional<Point> next();
  // Of the point that next() gave; infinity for one that cannot be. True: it is the best now.
  bool report(double cost);

  // The cheapest so far, the earliest of equals; infinity and `start` before the first.
  const Point& best() const { return best_; }
  double best_cost() const { return best_cost_; }
  size_t trials() const { return costs_.size(); }

 private:
  bool tried(const Point& point) const { return costs_.count(point) > 0; }
  // On the present axis, else on later ones, until a round is through.
  std::optional<Point> along_axes();
  void restart();
  bool exhausted() const;

  std::vector<size_t> sizes_;
  std::mt19937_64 random_;
  std::map<Point, double> costs_;
  std::optional<Point> asked_;
  Point current_;  // where the descent stands
  double current_cost_;
  Point best_;
  double best_cost_;
  size_t axis_ = 0;
  size_t value_ = 0;    // of the axis, the next to look at
  size_t settled_ = 0;  // axes in a row that improved nothing
  bool improved_ = false;
};

}  // namespace fasa
