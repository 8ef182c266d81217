// Chooses the prefetch depth (layers ahead) from measured step times. Independent of device and
// clock.
//
// Rows requested d layers ahead have the compute time of d layers to arrive. The smallest depth
// that hides them is transfer / compute, rounded up; larger depths predict worse. Predictions cost
// compute and may be wrong, so whole steps decide whether a depth pays. A rival depth is tried
// between two stretches at the present depth, so that other changes (filling hot rows, growing
// context) are not credited to it; it wins if its steps are shorter. A new depth is then on
// probation: it is compared with no prefetch at growing intervals, over growing stretches, because
// wrong predictions degrade hot rows slowly. Depths that lose are retried at growing intervals.
#pragma once

#include "offload/step_probe.h"

namespace fasa {

class DepthController {
 public:
  // `most`: the largest depth; 0 if no prediction is possible.
  explicit DepthController(int most) : max_(most) {}

  int depth() const { return depth_; }
  // False if every step should be measured.
  bool settled() const {
    return max_ == 0 || (stretch_ == Stretch::kStay && !filling_ && probation_ == 0);
  }
  // Time per layer of a step at `depth`. Ignored unless it is the depth being measured.
  void measured(int depth, const LayerTimes& times);

 private:
  enum class Stretch : uint8_t { kStay, kBefore, kTrial, kAfter };

  static constexpr int kFill = 8;   // measurements before the first trial: hot rows fill
  static constexpr int kTrial = 4;  // measurements of a stretch, the first after a change left out
  static constexpr int kTrialOfNone = 16;  // for a close duel with no prefetch
  static constexpr int kNobody = -1;
  static constexpr int kStay = 64;              // measurements between trials
  static constexpr int kMaxPauses = 16;         // times kStay, after failures in a row
  static constexpr double kSmoothing = 0.25;    // weight of a new measurement
  static constexpr double kWorthHiding = 0.01;  // share of a step; below it, no prediction
  static constexpr double kClear = 0.04;        // exceeds the effect of degraded hot rows
  static constexpr double kHopeless = 1.15;     // slowdown that ends a trial after one step
  static constexpr double kMargin = 0.005;      // minimum gain of a deeper rival

  void end_stretch();
  void begin(Stretch stretch, int depth);
  void begin_duel();
  void choose_rival();
  void judge(double after);
  void lose();
  void stay(int pauses);
  bool needs_more() const;
  bool waits() const;
  int next_rival();
  int min_depth() const;

  int max_;
  int depth_ = 0;
  int present_ = 0;  // the depth that rivals are measured against
  int rival_ = kNobody;
  int turn_ = 0;       // kind of the next rival
  int min_known_ = 0;  // min_depth() at the last choice of a rival
  Stretch stretch_ = Stretch::kStay;
  bool filling_ = true;  // nothing has been tried yet
  int left_ = kFill;     // measurements until this stretch ends
  int length_ = kTrial;  // measurements of a stretch of this duel
  int skip_ = 1;  // measurements to ignore after a change: hot rows are still the last depth's
  int pauses_ = 1;
  // Measurements until a new depth is compared with no prefetch again; 0: probation is over. Its
  // first win may be due to hot rows that filled meanwhile.
  int probation_ = 0;
  bool met_none_ = true;  // since the last stretch at the present depth alone
  double sum_ = 0;        // seconds per layer, summed over this stretch
  double before_ = 0, trial_ = 0;
  LayerTimes mean_;  // at the present depth
  bool known_ = false;
};

}  // namespace fasa
