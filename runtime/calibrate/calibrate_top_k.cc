#include "runtime/calibrate/calibrate_top_k.h"

#include <algorithm>
#include <cmath>

namespace fasa {
namespace {

// A step aims this many tokens beyond the k-th, so that it falls between two counts.
constexpr double kPast = 0.5;

}  // namespace

int64_t TopKSelector::probe(const End& low, const End& high, int64_t k) const {
  const auto under = static_cast<double>(k - low.below);
  const auto over = static_cast<double>(high.below - k);
  const auto step = [this](double tokens) {  // a density near 0 takes all of the range
    return static_cast<int64_t>(std::min((1.25 * tokens + kPast) / density_, 0x1p33));
  };
  if (!low.counted && !high.counted) return start_;
  if (!high.counted) return low.deficit + step(under);
  if (!low.counted) return high.deficit - step(over);
  const double aim = static_cast<double>(k) + (under > over ? -kPast : kPast);
  const auto ratio_to = [&](double below) {
    return std::log(std::max(below, 1.0) / static_cast<double>(std::max<int64_t>(low.below, 1)));
  };
  const double share = ratio_to(aim) / ratio_to(static_cast<double>(high.below));
  return low.deficit +
         static_cast<int64_t>(share * static_cast<double>(high.deficit - low.deficit));
}

void TopKSelector::select(std::span<const int32_t> deficits, int64_t k) {
  deficits_ = deficits;
  const auto tokens = static_cast<int64_t>(deficits.size());
  k = std::clamp<int64_t>(k, 0, tokens);
  End low{0, 0, false};
  End high{int64_t{cpu::kNoScore} + 1, tokens, false};
  // Interpolation may converge from one side only: halve after a step that leaves more than half.
  bool halve = density_ == 0;
  bool enclosed = false;
  int slow_steps = 0;
  while (low.below < k && k < high.below && high.deficit - low.deficit > 1) {
    const int64_t width = high.deficit - low.deficit;
    const bool at_start = !low.counted && !high.counted;
    const int64_t next = halve ? low.deficit + width / 2 : probe(low, high, k);
    const int64_t at = std::clamp(next, low.deficit + 1, high.deficit - 1);
    const int64_t below = bodies_->count_below(deficits.data(), tokens, static_cast<int32_t>(at));
    (below <= k ? low : high) = {at, below, true};
    const bool slow = 2 * (high.deficit - low.deficit) > width;
    if (!low.counted || !high.counted) {
      halve = density_ == 0;
      if (!at_start) density_ /= 4;  // farther than density_ predicted
      continue;
    }
    if (!enclosed) {
      density_ = static_cast<double>(high.below - low.below) /
                 static_cast<double>(high.deficit - low.deficit);
    }
    slow_steps = enclosed && slow ? slow_steps + 1 : 0;
    halve = slow_steps > 0 && slow_steps % 3 == 0;
    enclosed = true;
  }
  if (low.below == k) high = low;
  if (high.below == k) low = high;
  start_ = low.deficit;
  low_ = static_cast<int32_t>(low.deficit);
  high_ = static_cast<int32_t>(high.deficit);
  missing_ = k - low.below;
}

double TopKSelector::sum(std::span<const float> weights) {
  equals_.resize(deficits_.size());
  int64_t found = 0;
  double total = bodies_->sum_below(deficits_.data(), weights.data(), std::ssize(deficits_), low_,
                                    high_, equals_.data(), &found);
  for (int64_t i = 0; i < missing_; ++i) {
    total += double{weights[static_cast<size_t>(equals_[static_cast<size_t>(i)])]};
  }
  return total;
}

void TopKSelector::mark(std::span<uint8_t> selected) const {
  int64_t missing = missing_;
  for (size_t t = 0; t < deficits_.size(); ++t) {
    const bool taken = deficits_[t] < low_ || (deficits_[t] < high_ && missing-- > 0);
    selected[t] = taken ? 1 : 0;
  }
}

}  // namespace fasa
