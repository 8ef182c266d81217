// How many layers ahead to look, from what steps took. Knows no device and no clock.
//
// Rows that are asked for d layers ahead have d layers' compute to arrive in, so the least depth
// that can hide them is transfer / compute, rounded up: predictions get worse with every layer.
// Whether a depth pays is measured on whole steps, for predictions cost compute too and may be
// wrong. A rival is tried between two stretches at the present depth, so that what changes
// meanwhile (hot rows that fill, a context that grows) does not pass for its merit, and takes over
// if its steps are shorter. Then it is on probation: it has to win against none again and again, in
// longer and longer stretches, for wrong predictions wear hot rows out slowly. Depths that lose are
// left alone for longer and longer.
#pragma once

#include "scheduler/step_probe.h"

namespace fasa {

class DepthController {
 public:
  // `most`: the largest depth, 0 where nothing can be predicted.
  explicit DepthController(int most) : max_(most) {}

  int depth() const { return depth_; }
  // False: every step should be measured.
  bool settled() const {
    return max_ == 0 || (stretch_ == Stretch::kStay && !filling_ && probation_ == 0);
  }
  // What a step at `depth` took per layer; others than the present depth's say nothing.
  void measured(int depth, const LayerTimes& times);

 private:
  enum class Stretch : uint8_t { kStay, kBefore, kTrial, kAfter };

  static constexpr int kFill = 8;   // measurements before the first trial: hot rows fill
  static constexpr int kTrial = 4;  // measurements of a stretch, the first after a change left out
  static constexpr int kTrialOfNone = 16;  // where a duel with none is close
  static constexpr int kNobody = -1;
  static constexpr int kStay = 64;              // measurements between trials
  static constexpr int kMaxPauses = 16;         // times kStay, after failures in a row
  static constexpr double kSmoothing = 0.25;    // weight of a new measurement
  static constexpr double kWorthHiding = 0.01;  // of a step: less is not worth a prediction
  static constexpr double kClear = 0.04;        // more than wearing hot rows out hides
  static constexpr double kHopeless = 1.15;     // times a step: no second one is tried
  static constexpr double kMargin = 0.005;      // by which a deeper rival has to win

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
  int turn_ = 0;       // of the kinds of rivals
  int min_known_ = 0;  // min_depth() at the last choice of a rival
  Stretch stretch_ = Stretch::kStay;
  bool filling_ = true;  // nothing has been tried yet
  int left_ = kFill;     // measurements until this stretch ends
  int length_ = kTrial;  // measurements of a stretch of this duel
  int skip_ = 1;         // measurements: after a change they still see the last depth's hot rows
  int pauses_ = 1;
  // Measurements until a new depth has to win against none again; 0: it has done so for long
  // enough. What it won by may have been hot rows that filled meanwhile.
  int probation_ = 0;
  bool met_none_ = true;  // since the last stretch at the present depth alone
  double sum_ = 0;        // seconds of a layer, over this stretch
  double before_ = 0, trial_ = 0;
  LayerTimes mean_;  // at the present depth
  bool known_ = false;
};

}  // namespace fasa
