#include "scheduler/prefetch/prefetcher.h"

namespace fasa {

struct Prefetcher::Target {
  const StepContext& step;
  const DecodeScratch& scratch;
  int from;
  int layer;
  StreamView compute;
};

void Prefetcher::begin(const PrefetchPlan& plan, Predictor* predictor) {
  plan_ = plan;
  predictor_ = predictor;
}

void Prefetcher::prefetch_after(const StepContext& step, const StepScratch& scratch, int layer,
                                StreamView compute) {
  if (!plan_.on() || step.round > 0) return;
  const auto targets = PrefetchPlanner(settings_.layer_count(), plan_.depth).targets(layer);
  for (int next = targets.first; next < targets.end; ++next) {
    if (settings_.layer(next).dense) continue;
    const Target target{step, scratch.decode(), layer, next, compute};
    EventView sets_read;
    if (predictor_ != nullptr) {
      const auto buffer = static_cast<size_t>(next % target.scratch.prediction_buffers);
      while (sets_read_.size() <= buffer) sets_read_.push_back(device_.create_event());  // once
      sets_read = sets_read_[buffer].view();
      predict(target, sets_read);
    }
    fetch(target, sets_read);
  }
}

void Prefetcher::predict(const Target& target, EventView sets_read) {
  const DecodeScratch& scratch = target.scratch;
  const LayerSettings& layer = settings_.layer(target.layer);
  device_.wait(target.compute, sets_read, tag_of(target.from, Cause::kPrefetch));
  PredictedSet prediction;
  prediction.layer = target.from;
  prediction.ahead = target.layer - target.from;
  prediction.compute = target.compute;
  // If the layer shares the rows of one that has appended in this step, and the new token began a
  // page, the tail lacks the first token of the page before: a prediction may miss one token.
  prediction.select.step = layer_params(settings_, target.step, target.layer);
  prediction.select.budget = layer.prediction_budget();
  prediction.select.window = layer.window;
  prediction.select.ahead = prediction.ahead;
  prediction.select.selected_capacity = scratch.prediction_capacity;
  prediction.select.sets = scratch.prediction_sets_of(target.layer);
  prediction.select.selected_sizes = scratch.prediction_sizes_of(target.layer);
  prediction.select.scratch = scratch.select;
  prediction.select.page_capacity = scratch.select_pages;
  predictor_->predict(prediction);
}

void Prefetcher::fetch(const Target& target, EventView sets_read) {
  const DecodeScratch& scratch = target.scratch;
  const auto list = static_cast<size_t>(target.layer % settings_.prefetch_streams());
  const RowCall call =
      row_call(settings_, target.step, target.layer, target.compute, Cause::kPrefetch);
  transfers_.prefetch(call,
                      {.step = call.params,
                       .step_number = target.step.step_number,
                       .max_rows = plan_.rows,
                       .runners_up = predictor_ == nullptr,
                       .window = call.window,
                       .selected_capacity = scratch.prediction_capacity,
                       .sets = scratch.prediction_sets_of(target.layer),
                       .selected_sizes = scratch.prediction_sizes_of(target.layer),
                       .fetches = scratch.prediction_fetches_of(list),
                       .fetch_counts = scratch.prediction_counts_of(list),
                       .counters = target.step.counters + target.layer},
                      sets_read);
}

RunnersUp Prefetcher::runners_up(const StepContext& step, const DecodeScratch& scratch,
                                 int layer) const {
  if (!plan_.runners_up || scratch.prediction_rows == 0 || step.round > 0) return {};
  return {.capacity = scratch.prediction_capacity,
          .positions = scratch.prediction_sets_of(layer),
          .sizes = scratch.prediction_sizes_of(layer)};
}

}  // namespace fasa
