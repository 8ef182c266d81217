// Decode with rows over the link and hot rows for a whole set: each group of KV heads is fetched
// while the next one is scored.
#include "scheduler/step_pipeline_call.h"

namespace fasa {

void StepPipeline::fetch_group(const Call& call, const HeadGroups& groups, int group) {
  const OperationTag tag = tag_of(call.layer, Cause::kMiss);
  const StreamView copy = copy_stream(call.layer, group);
  device_.record(resolved_.view(), call.compute);  // the group's sets are chosen
  device_.wait(copy, resolved_.view(), tag);
  prefetcher_.wait_for_claims(call.layer, copy);
  // Fetches include the newest row.
  if (call.step.by_page) wait_written_back(call.layer, copy, tag);
  if (group == 0) call.step.mark(StepProbe::kFetchBegin, call.layer, copy);
  FetchParams params{resolve_params(call, 0)};
  params.resolve.step.heads = groups[group];
  device_.enqueue(params, copy, tag);
  if (group + 1 == groups.count()) call.step.mark(StepProbe::kFetchEnd, call.layer, copy);
  device_.record(fetched_[static_cast<size_t>(group)].view(), copy);
}

// Attends to a group's rows only when all of them have arrived: a separate launch for the tiles
// that need no fetch costs more than it saves.
void StepPipeline::decode_in_groups(const Call& call, ConstTensorView q, TensorView out,
                                    float* lse) {
  const HeadGroups& groups = call.plan().groups;
  SelectParams select = select_params(call, q);
  // The claims read the list that the select writes.
  if (select.runners_up.capacity > 0) prefetcher_.wait_for_claims(call.layer, call.compute);
  for (int g = 0; g < groups.count(); ++g) {
    select.step.heads = groups[g];
    device_.enqueue(select, call.compute, call.tag());
    fetch_group(call, groups, g);
  }
  AttendParams attend = attend_params(call, 0, q, out, lse);
  if (groups.codes_first()) {
    attend.tile_ready = nullptr;  // written with the fetch
    attend.phase = AttendPhase::kReadyTiles;
    device_.enqueue(attend, call.compute, call.tag());
    attend.phase = AttendPhase::kRemainingTiles;
  }
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
