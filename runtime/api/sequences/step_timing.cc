#include "runtime/api/sequences/step_timing.h"

#include <algorithm>
#include <utility>

namespace fasa {

StepTiming::StepTiming(StepStreams& streams, PrefetchControl& prefetch)
    : engine_(streams.engine()),
      prefetch_(prefetch),
      probes_{StepProbe(engine_.device()), StepProbe(engine_.device())} {
  renew_events();
}

void StepTiming::read(size_t slot) {
  StepProbe& probe = probes_[slot];
  if (probe.layer() < 0) return;
  prefetch_.measured(probe.read(engine_.settings().layer_count()), engine_.device().transfers(),
                     rows_of(slot));
  probe.stop();
}

PrefetchPlan StepTiming::plan(const OpenStep& step) {
  const std::vector<uint64_t> expected = std::exchange(expected_, {});
  lists_ = false;
  ++steps_;
  const auto decodes = [](const StepPart& part) { return part.mode == StepMode::kDecode; };
  if (!std::all_of(step.sequences.begin(), step.sequences.end(), decodes)) return {};
  const auto local = [](const StepPart& part) {
    return part.sequence->rows().access() == RowAccess::kLocal;
  };
  if (std::all_of(step.sequences.begin(), step.sequences.end(), local)) return {};
  const bool listed = !expected.empty() && expected == key_of(step);
  lists_ = true;
  PrefetchPlan plan = prefetch_.plan(static_cast<int>(step.sequences.size()), listed);
  if (prefetch_.measures(steps_)) {
    probes_[step.slot_index].start(prefetch_.measured_layer());
  }
  return plan;
}

std::vector<uint64_t> StepTiming::key_of(const OpenStep& step) const {
  std::vector<uint64_t> key;
  engine_.scratch().append_key(key);
  for (const StepPart& part : step.sequences) {
    key.push_back(static_cast<uint64_t>(part.id));
    key.push_back(static_cast<uint64_t>(part.sequence->length()));
  }
  return key;
}

// Not on the control stream: the next step's tables would wait for it.
void StepTiming::count_rows(size_t slot, EventView done) {
  if (probes_[slot].layer() < 0) return;
  const std::vector<StreamView> streams = engine_.executor().streams();
  if (streams.empty()) return;
  Counted& counted = counted_[slot];
  engine_.device().wait(streams.front(), done, tag_of(-1, Cause::kControl));
  engine_.counters().copy(counted.layers, streams.front());
  engine_.device().record(counted.read.view(), streams.front());
  counted.before = engine_.counters().before();
}

StepCounters StepTiming::rows_of(size_t slot) {
  const Counted& counted = counted_[slot];
  engine_.device().synchronize(counted.read.view());
  StepCounters rows = counted.before;
  for (const StepCounters& layer : counted.layers) rows += layer;
  return rows;
}

void StepTiming::planned(const PrefetchPlan& plan) {
  lists_ &= plan.runners_up;
  prefetch_.planned(plan);
}

void StepTiming::ended(const OpenStep& step) {
  if (std::exchange(lists_, false)) expected_ = key_of(step);
}

void StepTiming::renew_events() {
  for (StepProbe& probe : probes_) probe.renew_events();
  for (Counted& counted : counted_) counted.read = engine_.device().create_event();
}

}  // namespace fasa
