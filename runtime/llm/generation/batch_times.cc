#include "runtime/llm/generation/batch_times.h"

#include <algorithm>

namespace fasa {

void BatchTimes::measured(int tokens, double seconds) {
  if (weight_ > kTrusted) {
    seconds = std::min(seconds, kOutlier * relative(tokens) * seconds_ / weight_);
  }
  for (double* const sum : {&weight_, &tokens_, &seconds_, &squares_, &products_}) *sum *= kDecay;
  weight_ += 1;
  tokens_ += tokens;
  seconds_ += seconds;
  squares_ += static_cast<double>(tokens) * tokens;
  products_ += tokens * seconds;
}

// What a token takes, in terms of the mean step.
double BatchTimes::slope() const {
  const double mean = tokens_ / weight_;
  const double variance = squares_ / weight_ - mean * mean;
  if (variance < kMinVariance) return kUnknownSlope / mean;
  const double slope = (products_ / weight_ - mean * seconds_ / weight_) / variance;
  return std::clamp(slope * weight_ / seconds_, 0.0, 1 / mean);
}

double BatchTimes::relative(int tokens) const {
  if (seconds_ <= 0) return 1 + kUnknownSlope * (tokens - 1);
  return 1 + slope() * (tokens - tokens_ / weight_);
}

}  // namespace fasa
