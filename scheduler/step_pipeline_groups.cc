// Decode with rows on the host and hot rows for a whole set: groups of KV heads, each fetched while
// the next one is scored.
#include <algorithm>

#include "scheduler/step_pipeline_call.h"

namespace fasa {

bool StepPipeline::fits_hot_rows(const Call& call) const {
  const DecodeScratch& scratch = call.scratch.decode();
  return !settings_.rows_on_device && scratch.staging == nullptr &&
         scratch.wave >= scratch.selected_capacity;
}

// Sequences that a set is chosen for, as the mean of them.
GroupLoad StepPipeline::group_load(const Call& call, int64_t pages) const {
  GroupLoad load;
  int64_t copied = 0;
  int64_t hot_rows = 0;
  for (size_t i = 0; i < call.step.on_host.size(); ++i) {
    const SequenceDesc& sequence = call.step.on_host[i];
    if (sequence.mode != StepMode::kDecode) continue;
    const int32_t visible =
        sequence.end() - first_visible(sequence.start, call.settings(settings_).window);
    if (settings_.selected_tokens(call.layer, visible) >= visible) continue;
    ++load.sequences;
    load.scored += visible;
    hot_rows += sequence.hot_slots(settings_.layout);
    for (int page = 0; page < pages_of(sequence.end()); ++page) {
      copied += call.step.has_device_copy(i, page) ? 1 : 0;
    }
  }
  if (load.sequences == 0) return load;
  const double away =
      1 - static_cast<double>(copied) / static_cast<double>(std::max<int64_t>(1, pages));
  const auto mean = static_cast<int32_t>(load.scored / load.sequences);
  load.hot_rows = static_cast<int>(hot_rows / load.sequences);
  load.miss_share =
      std::max(0.0, away) * likely_miss_share(settings_, call.layer, mean, load.hot_rows);
  return load;
}

const HeadGroups& StepPipeline::groups_of(const Call& call) const {
  int64_t pages = 0;
  for (const SequenceDesc& sequence : call.step.on_host) {
    if (sequence.mode == StepMode::kDecode) pages += pages_of(sequence.end());
  }
  ChosenGroups& chosen = groups_[static_cast<size_t>(call.layer)];
  if (chosen.pages == pages && chosen.sequences == call.step.count()) return chosen.groups;
  chosen = {pages, call.step.count(), plan_groups(settings_, call.layer, group_load(call, pages))};
  return chosen.groups;
}

void StepPipeline::fetch_group(const Call& call, const HeadGroups& groups, int group) {
  const OperationTag tag = tag_of(call.layer, Cause::kMiss);
  const StreamView copy = copy_stream(call.layer, group);
  device_.record(resolved_.view(), call.compute);  // its sets are chosen
  device_.wait(copy, resolved_.view(), tag);
  prefetcher_.wait_for_claims(call.layer, copy);
  // The newest row is fetched too.
  if (call.step.by_page) wait_written_back(call.layer, copy, tag);
  if (group == 0) call.step.mark(StepProbe::kFetchBegin, call.layer, copy);
  FetchParams params{resolve_params(call, 0)};
  params.resolve.step.heads = groups[group];
  device_.enqueue(params, copy, tag);
  if (group + 1 == groups.count()) call.step.mark(StepProbe::kFetchEnd, call.layer, copy);
  device_.record(fetched_[static_cast<size_t>(group)].view(), copy);
}

// A group's tiles are attended to when all its rows are there: those that wait for none would cost
// a launch more than they take.
void StepPipeline::decode_in_groups(const Call& call, ConstTensorView q, TensorView out,
                                    float* lse) {
  const HeadGroups& groups = groups_of(call);
  SelectParams select = select_params(call, q);
  for (int g = 0; g < groups.count(); ++g) {
    select.step.heads = groups[g];
    device_.enqueue(select, call.compute, call.tag());
    fetch_group(call, groups, g);
  }
  AttendParams attend = attend_params(call, 0, q, out, lse);
  for (int g = 0; g < groups.count(); ++g) {
    const bool last = g + 1 == groups.count();
    if (last) {
      prefetcher_.prefetch_after(call.step, call.scratch, call.layer, written_, call.compute);
      call.step.mark(StepProbe::kBubble, call.layer, call.compute);
    }
    device_.wait(call.compute, fetched_[static_cast<size_t>(g)].view(), call.tag());
    if (g == 0) prefetcher_.wait_for_rows(call.layer, call.compute);
    if (last) call.step.mark(StepProbe::kArrived, call.layer, call.compute);
    attend.step.heads = groups[g];
    device_.enqueue(attend, call.compute, call.tag());
  }
}

}  // namespace fasa
