#include "runtime/tune/tune_search.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "runtime/base/error.h"

namespace fasa {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Smaller differences are ignored: costs are measured, and noise must not decide.
constexpr double kMargin = 1e-3;

bool cheaper(double cost, double than) { return cost < than * (1 - kMargin); }

}  // namespace

TuneSearch::TuneSearch(std::vector<size_t> sizes, Point start, uint64_t seed)
    : sizes_(std::move(sizes)),
      random_(seed),
      current_(std::move(start)),
      current_cost_(kNever),
      best_(current_),
      best_cost_(kNever) {
  bool inside = current_.size() == sizes_.size();
  for (size_t axis = 0; inside && axis < sizes_.size(); ++axis) {
    inside = current_[axis] < sizes_[axis];
  }
  if (!inside) {
    throw UsageError(fmt::format("the start of a search over {} axes is outside the allowed range",
                                 sizes_.size()));
  }
}

std::optional<TuneSearch::Point> TuneSearch::next() {
  if (asked_) return asked_;
  while (!exhausted()) {
    if (!tried(current_)) return asked_ = current_;
    if (const auto point = along_axes()) return asked_ = point;
    restart();
  }
  return std::nullopt;
}

std::optional<TuneSearch::Point> TuneSearch::along_axes() {
  while (settled_ < sizes_.size()) {
    while (value_ < sizes_[axis_]) {
      Point point = current_;
      point[axis_] = value_++;
      if (!tried(point)) return point;
    }
    settled_ = improved_ ? 1 : settled_ + 1;
    improved_ = false;
    value_ = 0;
    axis_ = (axis_ + 1) % sizes_.size();
  }
  return std::nullopt;
}

bool TuneSearch::report(double cost) {
  if (!asked_) throw UsageError("report() without a pending point; call next() first");
  const Point point = *std::exchange(asked_, std::nullopt);
  costs_[point] = cost;
  if (point == current_) {
    current_cost_ = cost;
  } else if (cheaper(cost, current_cost_)) {
    current_ = point;
    current_cost_ = cost;
    improved_ = true;
  }
  if (!cheaper(cost, best_cost_)) return false;
  best_ = point;
  best_cost_ = cost;
  return true;
}

bool TuneSearch::exhausted() const {
  size_t points = 1;
  for (const size_t size : sizes_) points *= size;
  return costs_.size() >= points;
}

// Takes the first untried point, starting from a random one; requires that one exists.
void TuneSearch::restart() {
  for (size_t axis = 0; axis < sizes_.size(); ++axis) current_[axis] = random_() % sizes_[axis];
  while (tried(current_)) {
    for (size_t axis = 0; axis < sizes_.size(); ++axis) {
      current_[axis] = (current_[axis] + 1) % sizes_[axis];
      if (current_[axis] != 0) break;
    }
  }
  current_cost_ = kNever;
  axis_ = 0;
  value_ = 0;
  settled_ = 0;
  improved_ = false;
}

}  // namespace fasa
