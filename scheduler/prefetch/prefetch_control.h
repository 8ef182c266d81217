// Decides for each step whether to prefetch, how far ahead and how much, from the settings and the
// times of earlier steps.
#pragma once

#include <cstdint>

#include "offload/device.h"
#include "offload/step_probe.h"
#include "scheduler/prefetch/predictor.h"
#include "scheduler/prefetch/prefetch_planner.h"
#include "scheduler/step_settings.h"

namespace fasa {

class PrefetchControl {
 public:
  explicit PrefetchControl(const StepSettings& settings);

  // Called between steps. `predictor` outlives this object and replaces the lists of runners-up;
  // null: none.
  void set_predictor(Predictor* predictor);
  // Hot rows of each sequence; the settings' number at first.
  void set_hot_rows(int hot_rows);

  // True if the caller set its own predictor.
  bool predictions_by_caller() const { return custom_ != nullptr; }
  // From now on plans change in coarse steps, not with every measurement: each new plan needs a new
  // graph.
  void plan_coarsely() { coarse_ = true; }

  // Null: the lists of runners-up.
  Predictor* predictor() const { return custom_; }
  // For the deepest plan that plan() can return; depth 0: no predictions.
  PredictionScratch scratch() const { return {max_depth_, custom_ != nullptr}; }
  // The same from the settings alone.
  static PredictionScratch scratch_for(const StepSettings& settings);

  // The plan of a step with `sequences` decoding sequences. `listed`: the step before listed its
  // runners-up for these.
  PrefetchPlan plan(int sequences, bool listed) const;

  // Whether the step should be measured, the `step`-th that was planned, and which layer of it.
  bool measures(int64_t step) const;
  int measured_layer() const;
  // Records a measured step, and the totals of transfers and rows so far.
  void measured(const LayerTimes& times, const TransferTotals& transfers, const StepCounters& rows);
  // Records the prefetch of the next step, after all limits.
  void planned(const PrefetchPlan& plan);

 private:
  static constexpr int kFirstTrial = 64;

  void choose();
  void count(const StepCounters& rows);

  const StepSettings& settings_;
  int hot_rows_;
  Predictor* custom_ = nullptr;
  int max_depth_ = 0;
  double compute_seconds_ = 0;  // of a layer
  double link_rate_ = 0;        // bytes per second
  uint64_t link_bytes_ = 0;
  double link_seconds_ = 0;
  int measurements_ = 0;
  StepCounters rows_;  // of all steps up to the last measured one
  PrefetchCounts counts_;
  bool counts_ahead_ = false;  // the last count had rows that were fetched ahead
  bool lists_ahead_ = false;   // the planned step fetches runners-up
  double counted_at_ = 0;      // counts_.missing when rows were last fetched ahead
  // Steps until runners-up that did not pay are tried again, and the steps of that trial to come.
  int until_trial_ = kFirstTrial;
  int trial_steps_ = 0;
  int pause_ = kFirstTrial;
  bool coarse_ = false;
};

}  // namespace fasa
