// How long one layer of a step computed, and how long its rows travelled, on the device's clock:
// events recorded on the way and read when the step has passed, so that nothing waits for them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "offload/device.h"

namespace fasa {

// Seconds of one layer.
struct LayerTimes {
  double step = 0;      // of the whole step, a layer's share; 0: it did not run to its end
  double compute = 0;   // of that, without what this layer waited for rows
  double transfer = 0;  // of the rows that were predicted for it, or asked for where none were
  double stall = 0;     // compute waited for rows
};

class StepProbe {
 public:
  enum Point : uint8_t {
    kBegin,       // of the step, on compute
    kFetchBegin,  // of what the layer asked for, on a stream
    kFetchEnd,
    kPredictionBegin,  // of what was predicted for the layer
    kPredictionEnd,
    kBubble,   // compute has nothing left to do but to wait for the layer's rows
    kArrived,  // the rows are there
    kEnd,      // of the step
    kPoints
  };

  explicit StepProbe(Device& device);

  void start(int layer);  // forgets all points
  void stop() { layer_ = -1; }
  void renew_events();                  // and stops; streams are idle
  int layer() const { return layer_; }  // -1: nothing is measured
  void mark(Point point, StreamView stream);

  // Of a step of `layers` layers that has passed. Zeros where it did not run to its end.
  LayerTimes read(int layers) const;

 private:
  double between(Point from, Point to) const;

  Device& device_;
  std::array<Event, kPoints> events_;
  std::array<bool, kPoints> marked_{};
  int layer_ = -1;
};

}  // namespace fasa
