// Enqueues prefetches: while a layer computes, fetches the rows predicted for a later layer.
//
//   compute  ... FAC of ready tiles -> prediction of layer t ...  resolve(t) ...  FAC of t's other
//   tiles stream                          \-> claim hot slots of t --/--> gather --/
//
// These streams have normal priority and the streams of misses high priority, so that misses
// overtake. No ordering is needed between two steps: before the next step touches a layer's hot
// rows, compute has waited for that layer's prefetches, and these streams wait for compute. A
// layer's select writes its list of runners-up, which the next step claims before the select writes
// it again.
#pragma once

#include <span>
#include <vector>

#include "offload/device.h"
#include "scheduler/prefetch/predictor.h"
#include "scheduler/prefetch/prefetch_planner.h"
#include "scheduler/step_batch.h"
#include "scheduler/step_scratch.h"
#include "scheduler/step_settings.h"

namespace fasa {

class Prefetcher {
 public:
  Prefetcher(Device& device, const StepSettings& settings);

  // Begins a step. `predictor` outlives it; plan.depth is at most its max_depth().
  void begin(const PrefetchPlan& plan, Predictor& predictor);

  // Called within attend of `layer`. `written`: per layer, the event after which the last step's
  // rows are on the host.
  void prefetch_after(const StepBatch& step, const StepScratch& scratch, int layer,
                      std::span<const Event> written, StreamView compute);
  // The list that the select of `layer` writes for the next step; capacity 0: none.
  RunnersUp runners_up(const DecodeScratch& scratch, int layer) const;
  // True if this step fetches the layer's runners-up of the step before.
  bool fetches_runners_up(int layer) const;
  // Makes compute wait until the claims for `layer` are in its tables; until their rows have
  // arrived.
  void wait_for_claims(int layer, StreamView compute);
  void wait_for_rows(int layer, StreamView compute);

  void synchronize();

  void add_streams(std::vector<StreamView>& streams) const;
  // For the current step: see StepPipeline.
  void add_to_key(const StepScratch& scratch, std::vector<uint64_t>& key) const;

 private:
  struct Target;
  // Maximum rows to prefetch per head: leaves a hot slot for every miss of the true set.
  int32_t max_rows(const DecodeScratch& scratch) const;
  void predict(const Target& target);
  void fetch(const Target& target, std::span<const Event> written);

  Device& device_;
  const StepSettings& settings_;
  std::vector<Stream> streams_;
  Event predicted_;
  std::vector<Event> claimed_;    // per layer
  std::vector<Event> arrived_;    // per layer
  std::vector<Event> sets_read_;  // per buffer of predicted sets
  std::vector<bool> looked_at_;   // per layer, in this step
  PrefetchPlan plan_;
  Predictor* predictor_ = nullptr;
};

}  // namespace fasa
