#include "scheduler/prefetch/depth_controller.h"

#include <algorithm>
#include <cmath>

namespace fasa {

void DepthController::measured(int depth, const LayerTimes& times) {
  if (max_ == 0 || depth != depth_ || !(times.step > 0)) return;
  if (skip_ > 0) {
    --skip_;
    return;
  }
  if (stretch_ != Stretch::kTrial) {
    const double weight = known_ ? kSmoothing : 1;
    known_ = true;
    mean_.compute += weight * (times.compute - mean_.compute);
    mean_.transfer += weight * (times.transfer - mean_.transfer);
    mean_.stall += weight * (times.stall - mean_.stall);
  }
  sum_ += times.step;
  if (stretch_ == Stretch::kTrial && rival_ > present_ && times.step > kHopeless * before_) {
    return lose();
  }
  if (stretch_ == Stretch::kStay && left_ > 1 && needs_more()) left_ = 1, turn_ = 0;
  if (--left_ == 0) end_stretch();
}

void DepthController::begin(Stretch stretch, int depth) {
  stretch_ = stretch;
  skip_ = depth == depth_ ? 0 : std::max(1, length_ / 2);
  depth_ = depth;
  left_ = length_;
  sum_ = 0;
}

void DepthController::end_stretch() {
  const double mean = sum_ / length_;
  switch (stretch_) {
    case Stretch::kStay:
      met_none_ = false;
      return begin_duel();
    case Stretch::kBefore:
      before_ = mean;
      return rival_ == kNobody ? choose_rival() : begin(Stretch::kTrial, rival_);
    case Stretch::kTrial:
      trial_ = mean;
      return begin(Stretch::kAfter, present_);
    case Stretch::kAfter:
      return judge(mean);
  }
}

void DepthController::begin_duel() {
  rival_ = kNobody;
  length_ = kTrial;
  begin(Stretch::kBefore, present_);
}

void DepthController::choose_rival() {
  min_known_ = min_depth();
  rival_ = next_rival();
  if (rival_ == present_) return stay(1);
  begin(Stretch::kTrial, rival_);
}

// A deeper rival must beat the better of the two stretches around it; a shallower one, their mean.
// Depth 0 keeps unused predictions out of the hot rows, which pays off late, so a close duel with
// it is measured for longer.
void DepthController::judge(double after) {
  const double mean = (before_ + after) / 2;
  const double doubt = std::max(kClear * mean, std::abs(before_ - after));
  const bool close = std::abs(trial_ - mean) < doubt;
  const int longest = std::max(kTrialOfNone, probation_ / 2);
  if (rival_ == 0 && close && length_ < longest) {
    length_ = longest;
    return begin(Stretch::kBefore, present_);
  }
  const bool wins =
      rival_ > present_ ? trial_ < (1 - kMargin) * std::min(before_, after) : trial_ <= mean;
  if (!wins) {
    if (rival_ == 0) probation_ = close && 2 * probation_ <= kStay ? 2 * probation_ : 0;
    return lose();
  }
  probation_ = rival_ > present_ ? kFill : 0;
  present_ = rival_;
  pauses_ = 1;
  turn_ = 0;
  known_ = false;  // the new depth has other transfers and stalls
  begin_duel();    // tries the next rival at once
}

void DepthController::lose() {
  stay(pauses_);
  if (present_ == 0) pauses_ = std::min(2 * pauses_, kMaxPauses);
}

void DepthController::stay(int pauses) {
  filling_ = false;
  length_ = kTrial;
  begin(Stretch::kStay, present_);
  left_ = probation_ > 0 ? probation_ : kStay * pauses;
}

// True if times have changed since the last trial so that the present depth hides less.
bool DepthController::needs_more() const {
  if (filling_ || pauses_ > 1) return false;
  return waits() && min_depth() > std::max(present_, min_known_);
}

bool DepthController::waits() const {
  return mean_.stall > kWorthHiding * (mean_.compute + mean_.stall);
}

// The next depth to try; the present one if there is none.
int DepthController::next_rival() {
  const int least = min_depth();
  if (present_ == 0) return waits() ? least : 0;
  if (probation_ > 0 && !met_none_) {
    met_none_ = true;
    return 0;
  }
  // In turn: one deeper if that can help, one shallower if that can suffice, no prefetch.
  for (int i = 0; i < 3; ++i) {
    const int kind = turn_++ % 3;
    if (kind == 0 && waits() && present_ < max_) return std::max(least, present_ + 1);
    if (kind == 1 && present_ > 1) return std::clamp(least, 1, present_ - 1);
    if (kind == 2) return 0;
  }
  return present_;
}

int DepthController::min_depth() const {
  const double layers = std::min(mean_.transfer / mean_.compute, 1e6);
  return std::clamp(static_cast<int>(std::ceil(layers)), 1, max_);
}

}  // namespace fasa
