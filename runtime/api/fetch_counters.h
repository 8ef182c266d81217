// Counts what steps found and fetched, per layer: kernels count in device memory, the host beside
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/layout.h"
#include "kernels/params.h"
#include "offload/device.h"
#include "runtime/api/hit_rate_sampler.h"
#include "runtime/api/kv_metrics.h"

namespace fasa {

class FetchCounters {
 public:
  // Counts are undefined until reset().
  FetchCounters(Device& device, int layers)
      : device_(device),
        memory_(device.allocate(MemorySpace::kDevice,
                                static_cast<size_t>(layers) * sizeof(StepCounters), "counters")),
        written_back_(static_cast<size_t>(layers)),
        prompt_bytes_(static_cast<size_t>(layers)) {}

  StepCounters* layers() const { return memory_.as<StepCounters>(); }
  std::span<const StepCounters> all() const { return {layers(), written_back_.size()}; }
  uint64_t bytes() const { return memory_.bytes(); }

  void add_decode_step() { ++decode_steps_; }
  void add_written_back(int layer, int64_t tokens) {
    written_back_[static_cast<size_t>(layer)] += static_cast<uint64_t>(tokens);
  }

  // Bytes of earlier rows that come back for prompts, per layer: counted where copies are enqueued.
  uint64_t* prompt_bytes() const { return prompt_bytes_.data(); }

  // Adds the hit rate of the step that `done` ends to the device's timeline, if it has one.
  void sample(EventView done);
  // `stream` counts nothing before the last sample was taken.
  void wait_sampled(StreamView stream);
  void forget_samples() { sampler_.reset(); }

  // Copies the counts of each layer to `layers` on `stream`; before(): what was counted until the
  // last reset(), over all layers.
  void copy(std::vector<StepCounters>& layers, StreamView stream) const;
  const StepCounters& before() const { return before_; }

  // Both need idle counting streams, and wait for `control`.
  FetchMetrics read(const CacheLayout& layout, StreamView control) const;
  void reset(StreamView control);

 private:
  Device& device_;
  Buffer memory_;
  uint64_t decode_steps_ = 0;
  StepCounters before_;
  bool counts_ = false;                         // after the first reset
  std::vector<uint64_t> written_back_;          // tokens, per layer
  mutable std::vector<uint64_t> prompt_bytes_;  // per layer; transfers add to it
  std::optional<HitRateSampler> sampler_;       // after the first sample
};

}  // namespace fasa
