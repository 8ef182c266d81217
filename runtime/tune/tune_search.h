// Chooses the settings to try next from the costs so far. Independent of the settings and of time:
// a point is an index of a value on each axis.
//
// Coordinate descent: tries all values of one axis, then of the next, with the best values of the
// others; after a round without improvement it restarts from a random point. No point is tried
// twice. The same seed and costs give the same points; costs that differ by less than 0.1 % count
// as equal.
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

  // `sizes`: number of values per axis, at least one; `start` is the first point. Throws UsageError
  // if `start` is out of range.
  TuneSearch(std::vector<size_t> sizes, Point start, uint64_t seed);

  // The next point; none if all were tried. The same point until its cost is reported.
  std::optional<Point> next();
  // Reports the cost of the last next(); infinity if the point is impossible. True: it is the best
  // so far.
  bool report(double cost);

  // The cheapest point, the earliest of equals; infinity and `start` before the first report.
  const Point& best() const { return best_; }
  double best_cost() const { return best_cost_; }
  size_t trials() const { return costs_.size(); }

 private:
  bool tried(const Point& point) const { return costs_.count(point) > 0; }
  // The next point on the current axis, else on later ones; none when the round is complete.
  std::optional<Point> along_axes();
  void restart();
  bool exhausted() const;

  std::vector<size_t> sizes_;
  std::mt19937_64 random_;
  std::map<Point, double> costs_;
  std::optional<Point> asked_;
  Point current_;  // where the descent is
  double current_cost_;
  Point best_;
  double best_cost_;
  size_t axis_ = 0;
  size_t value_ = 0;    // index of the axis' next value to try
  size_t settled_ = 0;  // consecutive axes without improvement
  bool improved_ = false;
};

}  // namespace fasa
