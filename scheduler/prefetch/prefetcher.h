// Decides what is prefetched: while a layer computes, the rows predicted for later layers.
//
//   compute   ... FAC of ready tiles -> prediction of layer t ...  resolve(t) ...  FAC of t's other
//   tiles prefetch                        \-> claim hot slots of t --/--> gather --/
//
// A layer's select writes its list of runners-up, which the next step claims before the select
// writes it again.
#pragma once

#include <vector>

#include "offload/device.h"
#include "offload/store/row_transfers.h"
#include "scheduler/prefetch/predictor.h"
#include "scheduler/prefetch/prefetch_planner.h"
#include "scheduler/step/step_context.h"
#include "scheduler/step/step_scratch.h"
#include "scheduler/step_settings.h"

namespace fasa {

class Prefetcher {
 public:
  // `transfers` move the rows. All arguments outlive the prefetcher.
  Prefetcher(Device& device, const StepSettings& settings, RowTransfers& transfers)
      : device_(device), settings_(settings), transfers_(transfers) {}

  // Begins a step. `predictor`, if not null, outlives it; plan.depth is at most its max_depth().
  void begin(const PrefetchPlan& plan, Predictor* predictor);

  // Called within attend of `layer`.
  void prefetch_after(const StepContext& step, const StepScratch& scratch, int layer,
                      StreamView compute);
  // The list that the select of `layer` writes for the next step; capacity 0: none.
  RunnersUp runners_up(const StepContext& step, const DecodeScratch& scratch, int layer) const;

 private:
  struct Target;
  void predict(const Target& target, EventView sets_read);
  void fetch(const Target& target, EventView sets_read);

  Device& device_;
  const StepSettings& settings_;
  RowTransfers& transfers_;
  std::vector<Event> sets_read_;  // per buffer of predicted sets
  PrefetchPlan plan_;
  Predictor* predictor_ = nullptr;  // null: lists of runners-up
};

}  // namespace fasa
