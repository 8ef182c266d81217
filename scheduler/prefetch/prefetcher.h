// Makes fetches of predictions: enqueues, while a layer computes, what a later one will ask for.
//
//   compute  ... FAC of ready tiles -> prediction of layer t ...  resolve(t) ...  FAC of t's other
//   tiles stream                          \-> claim hot slots of t --/--> gather --/
//
// The streams have normal priority, those of misses a high one: a true miss overtakes. Between two
// steps nothing has to be ordered beside this: before the next step touches a layer's hot rows,
// compute has waited for that layer's predictions, and the streams wait for compute.
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

  // A step. `predictor` outlives it; plan.depth is within its max_depth().
  void begin(const PrefetchPlan& plan, Predictor& predictor);

  // Inside attend of `layer`. `written`: per layer, the last step's rows are on the host.
  void prefetch_after(const StepBatch& step, const StepScratch& scratch, int layer,
                      std::span<const Event> written, StreamView compute);
  // compute waits until the predictions of `layer` stand in its tables; until their rows are there.
  void wait_for_claims(int layer, StreamView compute);
  void wait_for_rows(int layer, StreamView compute);

  void synchronize();

  void add_streams(std::vector<StreamView>& streams) const;
  // Of the step that was begun: see StepPipeline.
  void add_to_key(const StepScratch& scratch, std::vector<uint64_t>& key) const;

 private:
  struct Target;
  // Rows that may be fetched for a head: never so many that the true set would not find a slot for
  // each of its misses.
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
