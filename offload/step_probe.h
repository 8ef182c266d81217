// Measures one layer's compute and transfer times on the device's clock: events recorded during the
// step and read after it, so that nothing waits for them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "offload/device.h"

namespace fasa {

// Seconds per layer.
struct LayerTimes {
  double step = 0;      // the step's time / layers; 0: the step did not complete
  double compute = 0;   // from this layer to the next one, without the stall
  double transfer = 0;  // of its predicted rows, else of its misses
  double stall = 0;     // compute waits for rows, before any of the layer's head groups
};

class StepProbe {
 public:
  static constexpr int kMaxWaits = 4;
  enum Point : uint8_t {
    kBegin,       // start of the step, on compute
    kFetchBegin,  // the layer's misses, on a copy stream
    kFetchEnd,
    kPredictionBegin,  // the layer's predicted rows
    kPredictionEnd,
    kLayerBegin,  // the layer's append, on compute
    kLayerEnd,    // the next layer's
    kEnd,         // end of the step
    kBubble,      // compute starts to wait for the rows of the layer's first head group
    kArrived,     // they have arrived; then the same of the other groups
    kPoints = kBubble + 2 * kMaxWaits
  };
  static constexpr Point bubble(int group) { return static_cast<Point>(kBubble + 2 * group); }
  static constexpr Point arrived(int group) { return static_cast<Point>(kArrived + 2 * group); }

  explicit StepProbe(Device& device);

  void start(int layer);  // forgets all points
  void stop() { layer_ = -1; }
  void renew_events();                  // also stops; streams must be idle
  int layer() const { return layer_; }  // -1: nothing is measured
  void mark(Point point, StreamView stream);

  // Times of a complete step of `layers` layers. Zeros if it failed.
  LayerTimes read(int layers) const;

 private:
  double between(Point from, Point to) const;

  Device& device_;
  std::array<Event, kPoints> events_;
  std::array<bool, kPoints> marked_{};
  int layer_ = -1;
};

}  // namespace fasa
