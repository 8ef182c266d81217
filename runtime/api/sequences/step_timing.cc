#include "runtime/api/sequences/step_timing.h"

#include <algorithm>

namespace fasa {

StepTiming::StepTiming(const RuntimeParts& parts)
    : parts_(parts), probes_{StepProbe(parts.device), StepProbe(parts.device)} {}

void StepTiming::read(size_t slot) {
  StepProbe& probe = probes_[slot];
  if (probe.layer() < 0) return;
  parts_.prefetch.measured(depths_[slot], probe.read(parts_.settings.layer_count()),
                           parts_.device.transfers());
  probe.stop();
}

PrefetchPlan StepTiming::plan(const OpenStep& step, int32_t step_number) {
  const auto decodes = [](const StepSequence& part) { return part.mode == StepMode::kDecode; };
  if (!std::all_of(step.sequences.begin(), step.sequences.end(), decodes)) return {};
  const auto local = [this](const StepSequence& part) {
    return parts_.sequences.find(part.sequence).access() == RowAccess::kLocal;
  };
  if (std::all_of(step.sequences.begin(), step.sequences.end(), local)) return {};
  const auto remembers = [this](const StepSequence& part) {
    return parts_.sequences.find(part.sequence).hot_rows().remembers();
  };
  const bool remembered = std::any_of(step.sequences.begin(), step.sequences.end(), remembers);
  PrefetchPlan plan = parts_.prefetch.plan(static_cast<int>(step.sequences.size()), remembered);
  if (parts_.prefetch.measures(step_number)) {
    probes_[step.slot_index].start(parts_.prefetch.measured_layer());
    depths_[step.slot_index] = plan.depth;
  }
  return plan;
}

void StepTiming::renew_events() {
  for (StepProbe& probe : probes_) probe.renew_events();
}

}  // namespace fasa
