#include "scheduler/prefetch/depth_controller.h"

#include <algorithm>
#include <cmath>

namespace fasa {

void DepthController::measured(int depth, const LayerTimes& times) {
  if (most_ == 0 || depth != depth_ || !(times.compute > 0)) return;
  if (samples_++ == 0) return;  // still sees the last depth's hot rows
  const double weight = samples_ == 2 ? 1 : kSmoothing;
  mean_.compute += weight * (times.compute - mean_.compute);
  mean_.transfer += weight * (times.transfer - mean_.transfer);
  mean_.stall += weight * (times.stall - mean_.stall);
  if (samples_ < kTrial) return;
  judge();
}

void DepthController::judge() {
  if (known_ && left_ > 0) --left_;
  if (depth_ == 0) {
    judge_without();
  } else {
    judge_with();
  }
}

void DepthController::judge_without() {
  without_ = mean_.compute + mean_.stall;
  if (known_ && left_ > 0) return;  // guesses failed lately
  known_ = true;
  if (mean_.stall > kWorthHiding * without_) go_to(least_depth());
}

void DepthController::judge_with() {
  const bool first = !known_;
  known_ = true;
  if (mean_.compute + mean_.stall > (1 - kWorthHiding / 2) * without_) {
    go_to(0);
    known_ = true;
    left_ = kStay * pauses_;
    pauses_ = std::min(2 * pauses_, kMostPauses);
    return;
  }
  pauses_ = 1;
  if (first) left_ = kStay;
  const int least = least_depth();
  const bool too_deep = mean_.transfer <= kMargin * (depth_ - 1) * mean_.compute;
  if (least > depth_ || (least < depth_ && too_deep)) {
    go_to(least);
  } else if (left_ == 0) {
    go_to(0);
  }
}

void DepthController::go_to(int depth) {
  depth_ = depth;
  samples_ = 0;
  known_ = false;
  left_ = 0;
}

int DepthController::least_depth() const {
  const double layers = std::min(mean_.transfer / mean_.compute, 1e6);
  return std::clamp(static_cast<int>(std::ceil(layers)), 1, most_);
}

}  // namespace fasa
