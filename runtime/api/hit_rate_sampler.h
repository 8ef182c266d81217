// Adds the hit rate of every decode step to a device's timeline, without a wait on the host.
#pragma once

#include <memory>
#include <span>

#include "kernels/params.h"
#include "offload/device.h"
#include "offload/timeline/timeline.h"

namespace fasa {

// Needs a device that runs host code. Uses a stream of its own, so the model's clock is not charged
// for reading the counters.
class HitRateSampler {
 public:
  explicit HitRateSampler(Device& device)
      : device_(device),
        stream_(device.create_stream(StreamPriority::kNormal, "hit rate")),
        sampled_(device.create_event()) {}

  // Samples the step that `done` ends; one counter per layer. The next step must not count before
  // `sampled`.
  void sample(EventView done, std::span<const StepCounters> counters) {
    constexpr OperationTag kTag = tag_of(-1, Cause::kControl);
    device_.wait(stream_.view(), done, kTag);
    device_.launch(
        stream_.view(), kHitRateCounter,
        [counters, last = last_, timeline = device_.timeline()] {
          tell(*timeline, counters, *last);
          return KernelWork{};
        },
        kTag);
    device_.record(sampled_.view(), stream_.view());
  }
  EventView sampled() const { return sampled_.view(); }

 private:
  struct Totals {
    uint64_t found = 0;
    uint64_t missed = 0;
  };

  // Counters below their last values have been reset.
  static void tell(Timeline& timeline, std::span<const StepCounters> counters, Totals& last) {
    Totals now;
    for (const StepCounters& layer : counters) {
      now.found += layer.protected_rows + layer.hits;
      now.missed += layer.misses;
    }
    const Totals before = now.found < last.found || now.missed < last.missed ? Totals{} : last;
    last = now;
    const auto found = static_cast<double>(now.found - before.found);
    const double all = found + static_cast<double>(now.missed - before.missed);
    if (all > 0) timeline.sample_operation(kHitRateCounter, found / all);
  }

  Device& device_;
  Stream stream_;
  Event sampled_;
  std::shared_ptr<Totals> last_ = std::make_shared<Totals>();
};

}  // namespace fasa
