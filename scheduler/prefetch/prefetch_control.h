// Whether to predict, how far ahead and how much, step by step, from the settings and from what
// earlier steps took.
#pragma once

#include <cstdint>
#include <memory>

#include "offload/device.h"
#include "scheduler/prefetch/depth_controller.h"
#include "scheduler/prefetch/predictor.h"
#include "scheduler/prefetch/prefetch_planner.h"
#include "scheduler/prefetch/query_source.h"
#include "scheduler/step_settings.h"

namespace fasa {

class PrefetchControl {
 public:
  PrefetchControl(Device& device, const StepSettings& settings);

  // Between steps. Both may be null, and outlive what is made of them. `predictor` takes the place
  // of whatever the settings name.
  void set_query_source(QuerySource* source);
  void set_predictor(Predictor* predictor);
  // The settings have changed.
  void refresh() { choose(); }
  // Throws UsageError where the settings want a query source and there is none.
  void require_query_source() const;

  // The caller's own predictor, which may do anything.
  bool predictions_by_caller() const { return custom_ != nullptr; }
  // From now on plans move in few steps, not with every measurement: each new one costs a graph.
  void plan_coarsely() { coarse_ = true; }

  Predictor& predictor() const { return custom_ != nullptr ? *custom_ : *own_; }
  // By the deepest that plan() will ask for; 0: nothing is predicted.
  PredictionScratch scratch() const { return {max_depth_, predictor().writes_sets()}; }
  // The same before there is anything, with a source that sees `source_depth` layers; 0: without.
  static PredictionScratch scratch_for(const StepSettings& settings, int source_depth);

  // A step of so many decoding sequences. `remembered`: some of their hot rows' tables remember
  // rows that they lost.
  PrefetchPlan plan(int sequences, bool remembered) const;

  // Whether step `step_number` should be measured, and which layer of it.
  bool measures(int32_t step_number) const;
  int measured_layer() const;
  // A measured step of that depth, and all transfers so far.
  void measured(int depth, const LayerTimes& times, const TransferTotals& transfers);

 private:
  void choose();

  Device& device_;
  const StepSettings& settings_;
  QuerySource* source_ = nullptr;
  Predictor* custom_ = nullptr;
  std::unique_ptr<Predictor> own_;
  int max_depth_ = 0;
  DepthController depth_{0};
  double compute_seconds_ = 0;  // of a layer
  double link_rate_ = 0;        // bytes per second
  uint64_t link_bytes_ = 0;
  double link_seconds_ = 0;
  int measurements_ = 0;
  bool coarse_ = false;
};

}  // namespace fasa
