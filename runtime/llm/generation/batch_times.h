// How long decode steps take, by their tokens.
#pragma once

namespace fasa {

// A line through the measured steps; the newest count most, since contexts grow.
class BatchTimes {
 public:
  void measured(int tokens, double seconds);
  double mean() const { return weight_ > 0 ? seconds_ / weight_ : 0; }  // seconds; 0: none measured
  // In terms of the mean of the measured steps.
  double relative(int tokens) const;

 private:
  static constexpr double kDecay = 0.98;  // a step
  static constexpr double kOutlier = 2;   // times what is expected: something else took that long
  static constexpr int kTrusted = 8;      // steps before outliers are cut
  // What a token takes, in terms of a step, where the steps all had about as many.
  static constexpr double kUnknownSlope = 0.2;
  static constexpr double kMinVariance = 0.1;  // tokens²

  double slope() const;

  double weight_ = 0, tokens_ = 0, seconds_ = 0, squares_ = 0, products_ = 0;
};

}  // namespace fasa
