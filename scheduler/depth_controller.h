// How many layers ahead to look, from what a layer's compute and its rows' transfer take. Knows no
// device and no clock.
//
// Rows that are asked for d layers ahead have d layers' compute to arrive in, so the least depth is
// transfer / compute, rounded up: guesses get worse with every layer. Where the compute waits for
// less than a guess costs (a part of a layer's scoring), none is made.
#pragma once

#include "scheduler/step_probe.h"

namespace fasa {

class DepthController {
 public:
  // `most`: the largest depth, 0 where nothing can be guessed.
  explicit DepthController(int most) : most_(most), depth_(most > 0 ? 1 : 0) {}

  int depth() const { return depth_; }
  // What a step at `depth` took per layer; others than the present depth's say nothing.
  void measured(int depth, const LayerTimes& times);

 private:
  int wanted() const;

  static constexpr double kSmoothing = 0.25;    // weight of a new measurement
  static constexpr double kWorthHiding = 0.05;  // of the compute: about what a guess costs
  static constexpr double kMargin = 0.8;        // of a depth's room, before it is called too deep
  static constexpr int kPatience = 3;           // measurements that must agree

  int most_;
  int depth_;
  bool known_ = false;
  LayerTimes mean_;
  int candidate_ = 0;
  int agreed_ = 0;
};

}  // namespace fasa
