// The later layer's query, estimated from what the present layer knows, then the selection on a
// part of every slice.
#pragma once

#include "offload/device.h"
#include "scheduler/prefetch/predictor.h"
#include "scheduler/prefetch/query_source.h"

namespace fasa {

class NextQueryPredictor final : public Predictor {
 public:
  // Both outlive it.
  NextQueryPredictor(Device& device, QuerySource& source) : device_(device), source_(source) {}
  int max_ahead() const override { return source_.max_ahead(); }
  bool writes_sets() const override { return true; }
  void predict(const Guess& guess) override;

 private:
  Device& device_;
  QuerySource& source_;
};

}  // namespace fasa
