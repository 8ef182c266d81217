#include "scheduler/depth_controller.h"

#include <algorithm>
#include <cmath>

namespace fasa {

void DepthController::measured(int depth, const LayerTimes& times) {
  if (most_ == 0 || depth != depth_ || !(times.compute > 0)) return;
  const double weight = known_ ? kSmoothing : 1;
  mean_.compute += weight * (times.compute - mean_.compute);
  mean_.transfer += weight * (times.transfer - mean_.transfer);
  mean_.stall += weight * (times.stall - mean_.stall);
  known_ = true;
  const int want = wanted();
  agreed_ = want == candidate_ ? agreed_ + 1 : 1;
  candidate_ = want;
  if (want == depth_ || agreed_ < kPatience) return;
  depth_ = want;
  known_ = false;  // another depth, other times
  agreed_ = 0;
}

int DepthController::wanted() const {
  // Without guesses the rows are asked for when they are needed: what they cost is the wait. With
  // guesses it is what the wait would be, about their transfer.
  const double hidden = depth_ == 0 ? mean_.stall : mean_.transfer;
  // On the way back to no guesses the gain must be clearly too small.
  const double worth = (depth_ == 0 ? 1 : kMargin) * kWorthHiding * mean_.compute;
  if (hidden <= worth) return 0;
  const double layers = mean_.transfer / mean_.compute;
  const int least = std::clamp(static_cast<int>(std::ceil(std::min(layers, 1e6))), 1, most_);
  if (least >= depth_) return least;
  return layers <= kMargin * (depth_ - 1) ? least : depth_;
}

}  // namespace fasa
