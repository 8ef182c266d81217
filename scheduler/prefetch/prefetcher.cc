#include "scheduler/prefetch/prefetcher.h"

#include <algorithm>
#include <string>

namespace fasa {

struct Prefetcher::Target {
  const StepBatch& step;
  const DecodeScratch& scratch;
  int from;
  int layer;
  StreamView compute;
};

Prefetcher::Prefetcher(Device& device, const StepSettings& settings)
    : device_(device),
      settings_(settings),
      looked_at_(static_cast<size_t>(settings.layer_count()), false) {
  if (!settings.prefetches(settings.max_hot_rows)) return;
  for (int i = 0; i < settings.prefetch_streams(); ++i) {
    streams_.push_back(
        device.create_stream(StreamPriority::kNormal, "prefetch " + std::to_string(i)));
  }
  predicted_ = device.create_event();
  for (int i = 0; i < settings.layer_count(); ++i) {
    claimed_.push_back(device.create_event());
    arrived_.push_back(device.create_event());
  }
}

void Prefetcher::begin(const PrefetchPlan& plan, Predictor& predictor) {
  plan_ = plan;
  predictor_ = &predictor;
  looked_at_.assign(looked_at_.size(), false);
}

void Prefetcher::prefetch_after(const StepBatch& step, const StepScratch& scratch, int layer,
                                std::span<const Event> written, StreamView compute) {
  if (!plan_.on() || streams_.empty() || max_rows(scratch.decode()) <= 0) return;
  const auto targets = PrefetchPlanner(settings_.layer_count(), plan_.depth).targets(layer);
  for (int next = targets.first; next < targets.end; ++next) {
    if (settings_.layer(next).dense) continue;
    const Target target{step, scratch.decode(), layer, next, compute};
    if (predictor_->writes_sets()) predict(target);
    device_.record(predicted_.view(), compute);
    fetch(target, written);
    looked_at_[static_cast<size_t>(next)] = true;
  }
}

int32_t Prefetcher::max_rows(const DecodeScratch& scratch) const {
  return std::min(plan_.rows, scratch.prediction_rows);
}

void Prefetcher::predict(const Target& target) {
  const DecodeScratch& scratch = target.scratch;
  const LayerSettings& layer = settings_.layer(target.layer);
  const auto buffer = static_cast<size_t>(target.layer % scratch.prediction_buffers);
  while (sets_read_.size() <= buffer) sets_read_.push_back(device_.create_event());  // first step
  device_.wait(target.compute, sets_read_[buffer].view(), tag_of(target.from, Cause::kPrefetch));
  PredictedSet prediction;
  prediction.layer = target.from;
  prediction.ahead = target.layer - target.from;
  prediction.compute = target.compute;
  prediction.select.step = layer_params(settings_, target.step, target.layer);
  prediction.select.budget = layer.prediction_budget();
  prediction.select.window = layer.window;
  prediction.select.page_tokens = settings_.page_tokens;
  prediction.select.ahead = prediction.ahead;
  prediction.select.selected_capacity = scratch.prediction_capacity;
  prediction.select.sets = scratch.prediction_sets_of(target.layer);
  prediction.select.selected_sizes = scratch.prediction_sizes_of(target.layer);
  prediction.select.scratch = scratch.select;
  predictor_->predict(prediction);
}

void Prefetcher::fetch(const Target& target, std::span<const Event> written) {
  const DecodeScratch& scratch = target.scratch;
  const auto layer = static_cast<size_t>(target.layer);
  const auto index = layer % streams_.size();
  const StreamView stream = streams_[index].view();
  const bool sets = predictor_->writes_sets();
  FetchItem* fetches = scratch.prediction_fetches_of(index);
  int32_t* counts = scratch.prediction_counts_of(index);
  const OperationTag tag = tag_of(target.layer, Cause::kPrefetch);
  device_.wait(stream, predicted_.view(), tag);
  ClaimSlotsParams params{.step = layer_params(settings_, target.step, target.layer),
                          .step_number = target.step.step_number,
                          .replacement = settings_.replacement,
                          .max_rows = max_rows(scratch),
                          .runners_up = !sets,
                          .window = settings_.layer(target.layer).window,
                          .selected_capacity = scratch.prediction_capacity,
                          .sets = scratch.prediction_sets_of(target.layer),
                          .selected_sizes = scratch.prediction_sizes_of(target.layer),
                          .fetches = fetches,
                          .fetch_counts = counts,
                          .counters = target.step.counters + target.layer};
  device_.enqueue(params, stream, tag);
  device_.record(claimed_[layer].view(), stream);
  if (sets) {
    const auto buffer = layer % static_cast<size_t>(scratch.prediction_buffers);
    device_.record(sets_read_[buffer].view(), stream);
  }
  device_.wait(stream, written[layer].view(), tag);
  target.step.mark(StepProbe::kPredictionBegin, target.layer, stream);
  device_.enqueue(GatherParams{.layout = settings_.layout,
                               .count = params.step.count,
                               .wave = params.max_rows,
                               .fetches = fetches,
                               .fetch_counts = counts},
                  stream, tag);
  device_.record(arrived_[layer].view(), stream);
  target.step.mark(StepProbe::kPredictionEnd, target.layer, stream);
}

bool Prefetcher::fetches_runners_up(int layer) const {
  return plan_.on() && !streams_.empty() && !predictor_->writes_sets() && layer > 0;
}

RunnersUp Prefetcher::runners_up(const DecodeScratch& scratch, int layer) const {
  if (streams_.empty() || predictor_ == nullptr || predictor_->writes_sets() ||
      predictor_->max_depth() == 0 || scratch.prediction_rows == 0) {
    return {};
  }
  return {.capacity = scratch.prediction_capacity,
          .positions = scratch.prediction_sets_of(layer),
          .sizes = scratch.prediction_sizes_of(layer)};
}

void Prefetcher::wait_for_claims(int layer, StreamView compute) {
  const auto at = static_cast<size_t>(layer);
  if (looked_at_[at]) device_.wait(compute, claimed_[at].view(), tag_of(layer, Cause::kCompute));
}

void Prefetcher::wait_for_rows(int layer, StreamView compute) {
  const auto at = static_cast<size_t>(layer);
  if (looked_at_[at]) device_.wait(compute, arrived_[at].view(), tag_of(layer, Cause::kCompute));
}

void Prefetcher::synchronize() {
  for (const Stream& stream : streams_) device_.synchronize(stream.view());
}

void Prefetcher::add_streams(std::vector<StreamView>& streams) const {
  for (const Stream& stream : streams_) streams.push_back(stream.view());
}

void Prefetcher::add_to_key(const StepScratch& scratch, std::vector<uint64_t>& key) const {
  const bool on = plan_.on() && !streams_.empty();
  key.push_back(on ? static_cast<uint64_t>(plan_.depth) : 0);
  key.push_back(on ? static_cast<uint64_t>(std::max(max_rows(scratch.decode()), 0)) : 0);
}

}  // namespace fasa
