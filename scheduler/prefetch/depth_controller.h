// How many layers ahead to look, from what layers took. Knows no device and no clock.
//
// Rows that are asked for d layers ahead have d layers' compute to arrive in, so the least depth
// that can hide them is transfer / compute, rounded up: guesses get worse with every layer. Whether
// guesses pay at all is measured, for they cost compute too and may be wrong: now and then some
// steps go without (a trial), and a depth that does not beat those is left for a while.
#pragma once

#include "scheduler/step_probe.h"

namespace fasa {

class DepthController {
 public:
  // `most`: the largest depth, 0 where nothing can be guessed.
  explicit DepthController(int most) : most_(most) {}

  int depth() const { return depth_; }
  // False: every step should be measured.
  bool settled() const { return most_ == 0 || (known_ && left_ > 0); }
  // What a step at `depth` took per layer; others than the present depth's say nothing.
  void measured(int depth, const LayerTimes& times);

 private:
  // Measurements of a depth before it is judged, the first after a change left out.
  static constexpr int kTrial = 4;
  static constexpr int kStay = 64;        // measurements until the next trial without guesses
  static constexpr int kMostPauses = 16;  // times kStay without guesses, after failures in a row
  static constexpr double kSmoothing = 0.25;    // weight of a new measurement
  static constexpr double kWorthHiding = 0.03;  // of a layer: less is not worth a guess
  static constexpr double kMargin = 0.8;        // of a depth's room, before it is called too deep

  void judge();
  void judge_without();
  void judge_with();
  void go_to(int depth);
  int least_depth() const;

  int most_;
  int depth_ = 0;
  int samples_ = 0;     // at this depth
  bool known_ = false;  // this depth has been judged
  int left_ = 0;        // measurements until the next change of mind
  int pauses_ = 1;      // grows with failures in a row
  double without_ = 0;  // seconds of a layer without guesses; 0 = not known
  LayerTimes mean_;
};

}  // namespace fasa
