// Decode with rows over the link and hot rows for a whole set: each group of KV heads is fetched
// while the next one is scored.
#include "scheduler/step/step_executor_call.h"

namespace fasa {

static_assert(HeadGroups::kMax <= StepProbe::kMaxWaits);

// Attends to a group's rows only when all of them have arrived: a separate launch for the tiles
// that need no fetch costs more than it saves.
void StepExecutor::decode_in_groups(const Call& call, ConstTensorView q, TensorView out,
                                    float* lse) {
  const HeadGroups& groups = call.plan().groups;
  SelectParams select = select_params(call, q);
  // The claims read the list that the select writes.
  if (select.runners_up.capacity > 0) call.transfers.await_claims(call.rows);
  for (int g = 0; g < groups.count(); ++g) {
    select.step.heads = groups[g];
    device_.enqueue(select, call.compute(), call.tag());
    FetchParams fetch{resolve_params(call, 0)};
    fetch.resolve.step.heads = groups[g];
    call.transfers.fetch_group(call.rows, fetch, g, g + 1 == groups.count());
  }
  AttendParams attend = attend_sets(call, 0, q, out, lse);
  if (groups.codes_first()) {
    attend.tile_ready = nullptr;  // written with the fetch
    attend.phase = AttendPhase::kReadyTiles;
    device_.enqueue(attend, call.compute(), call.tag());
    attend.phase = AttendPhase::kRemainingTiles;
  }
  for (int g = 0; g < groups.count(); ++g) {
    if (g + 1 == groups.count()) {
      prefetcher_.prefetch_after(call.step, call.scratch, call.layer(), call.compute());
    }
    call.transfers.await_group(call.rows, g);
    attend.step.heads = groups[g];
    device_.enqueue(attend, call.compute(), call.tag());
  }
}

}  // namespace fasa
