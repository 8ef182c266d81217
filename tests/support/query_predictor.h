// A caller's predictor for tests: estimates the later layer's query, and selects with it on a part
// of each slice.
#pragma once

#include <algorithm>

#include "offload/device.h"
#include "scheduler/prefetch/predictor.h"

namespace fasa::testing {

class QueryPredictor : public Predictor {
 public:
  explicit QueryPredictor(Device& device) : device_(device) {}

  // Enqueues on `stream` the query of layer `layer + ahead`, [tokens, query_heads, key_dim] in
  // device memory, valid until the next call with the same `ahead`.
  virtual ConstTensorView estimate(int layer, int ahead, StreamView stream) = 0;

  void predict(const PredictedSet& prediction) override {
    constexpr int kPart = 8;  // of the slice
    constexpr int kMinDims = 16;
    SelectParams select = prediction.select;
    select.q = estimate(prediction.layer, prediction.ahead, prediction.compute);
    select.score_dims = std::max(select.step.layout.slice.dims / kPart, kMinDims);
    select.ahead = prediction.ahead;
    select.counters = nullptr;  // NaN in a prediction is not counted
    device_.enqueue(select, prediction.compute, prediction.tag());
  }

 protected:
  Device& device() const { return device_; }

 private:
  Device& device_;
};

}  // namespace fasa::testing
