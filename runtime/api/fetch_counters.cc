#include "runtime/api/fetch_counters.h"

#include <algorithm>
#include <utility>

namespace fasa {

void FetchCounters::copy(std::vector<StepCounters>& layers, StreamView stream) const {
  layers.resize(written_back_.size());
  device_.copy(layers.data(), memory_.data(), memory_.bytes(), CopyKind::kDeviceToHost, stream,
               tag_of(-1, Cause::kControl));
}

FetchMetrics FetchCounters::read(const CacheLayout& layout, StreamView control) const {
  FetchMetrics metrics;
  copy(metrics.layers, control);
  device_.synchronize(control);
  metrics.decode_steps = decode_steps_;
  const auto row_bytes = static_cast<uint64_t>(layout.row.bytes());
  const auto token_bytes = row_bytes * static_cast<uint64_t>(layout.kv_heads);
  for (size_t layer = 0; layer < metrics.layers.size(); ++layer) {
    const StepCounters& rows = metrics.layers[layer];
    metrics.rows += rows;
    metrics.layer_bytes.push_back({.miss = rows.misses * row_bytes,
                                   .prefetch = rows.prefetched * row_bytes,
                                   .write_back = written_back_[layer] * token_bytes,
                                   .prompt = prompt_bytes_[layer]});
    metrics.bytes.miss += metrics.layer_bytes.back().miss;
    metrics.bytes.prefetch += metrics.layer_bytes.back().prefetch;
    metrics.bytes.write_back += metrics.layer_bytes.back().write_back;
    metrics.bytes.prompt += metrics.layer_bytes.back().prompt;
  }
  metrics.fetched_bytes = metrics.bytes.miss;
  return metrics;
}

void FetchCounters::reset(StreamView control) {
  std::vector<StepCounters> layers;
  if (std::exchange(counts_, true)) {
    copy(layers, control);
    device_.synchronize(control);  // before anything fails: the copy writes into `layers`
  }
  device_.fill(memory_.data(), 0, memory_.bytes(), control, tag_of(-1, Cause::kControl));
  device_.synchronize(control);
  for (const StepCounters& layer : layers) before_ += layer;
  decode_steps_ = 0;
  std::fill(written_back_.begin(), written_back_.end(), 0);
  std::fill(prompt_bytes_.begin(), prompt_bytes_.end(), 0);
}

void FetchCounters::sample(EventView done) {
  if (device_.timeline() == nullptr || device_.host_work() == nullptr) return;
  if (!sampler_) sampler_.emplace(device_);
  sampler_->sample(done, all());
}

void FetchCounters::wait_sampled(StreamView stream) {
  if (sampler_) device_.wait(stream, sampler_->sampled(), tag_of(-1, Cause::kControl));
}

}  // namespace fasa
