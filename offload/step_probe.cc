#include "offload/step_probe.h"

#include <algorithm>

namespace fasa {

StepProbe::StepProbe(Device& device) : device_(device) { renew_events(); }

void StepProbe::renew_events() {
  stop();
  marked_.fill(false);
  for (Event& event : events_) event = device_.create_event();
}

void StepProbe::start(int layer) {
  layer_ = layer;
  marked_.fill(false);
}

void StepProbe::mark(Point point, StreamView stream) {
  device_.record(events_[point].view(), stream);
  marked_[point] = true;
}

double StepProbe::between(Point from, Point to) const {
  if (!marked_[from] || !marked_[to]) return 0;
  return std::max(
      0.0, device_.seconds_at(events_[to].view()) - device_.seconds_at(events_[from].view()));
}

LayerTimes StepProbe::read(int layers) const {
  if (layer_ < 0 || layers <= 0) return {};
  LayerTimes times;
  for (int group = 0; group < kMaxWaits; ++group) {
    times.stall += between(bubble(group), arrived(group));
  }
  times.transfer = marked_[kPredictionEnd] ? between(kPredictionBegin, kPredictionEnd)
                                           : between(kFetchBegin, kFetchEnd);
  times.step = between(kBegin, kEnd) / layers;
  const bool whole = marked_[kLayerBegin] && marked_[kLayerEnd];
  const double layer = whole ? between(kLayerBegin, kLayerEnd) : times.step;
  times.compute = std::max(0.0, layer - times.stall);
  return times;
}

}  // namespace fasa
