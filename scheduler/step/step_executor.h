// Processes a step layer by layer, enqueued on the caller's compute stream. The rows' transfers run
// on streams of their own (see HostTransfers), ordered only by events. A set that may not fit the
// hot rows is processed in waves, all heads together:
//
//   compute   append -> select -> resolve -> FAC of ready tiles -----> FAC of the others, fold
//   copy                              \-> gather of the misses --/
#pragma once

#include <memory>
#include <vector>

#include "kernels/params.h"
#include "offload/device.h"
#include "offload/store/row_transfers.h"
#include "runtime/base/tensor_view.h"
#include "scheduler/plan/group_memo.h"
#include "scheduler/plan/step_plan.h"
#include "scheduler/prefetch/prefetcher.h"
#include "scheduler/step/step_context.h"
#include "scheduler/step/step_scratch.h"
#include "scheduler/step_settings.h"

namespace fasa {

class StepExecutor {
 public:
  StepExecutor(Device& device, const StepSettings& settings);

  // The plan of a step's attention. The scratch suffices for the step.
  StepPlan plan(const StepContext& step, const StepScratch& scratch, const PrefetchPlan& prefetch);
  // Call before the first layer of a step that may prefetch.
  void begin(const PrefetchPlan& plan, Predictor* predictor) {
    rows_->begin_step();
    prefetcher_.begin(plan, predictor);
  }
  void append(const StepContext& step, const StepScratch& scratch, int layer, ConstTensorView k,
              ConstTensorView v, StreamView compute);
  void attend(const StepContext& step, const StepScratch& scratch, int layer, ConstTensorView q,
              TensorView out, float* lse, StreamView compute);

  // The streams that move rows.
  std::vector<StreamView> streams() const { return rows_->streams(); }
  // See RowTransfers.
  void await_written_back(int layer, StreamView stream, OperationTag tag) {
    transfers(layer).await_written_back(settings_.layer(layer).index, stream, tag);
  }
  void record_written_back(EventView event) { rows_->record_written_back(event); }
  void synchronize() { rows_->synchronize(); }

 private:
  struct Call;  // the arguments of one append or attend
  Call call(const StepContext& step, const StepScratch& scratch, int layer, StreamView compute,
            Cause cause = Cause::kCompute);
  RowTransfers& transfers(int layer) {
    return settings_.layer(layer).in_window_rows ? window_rows_ : *rows_;
  }
  SelectParams select_params(const Call& call, ConstTensorView q) const;
  void choose(const Call& call, ConstTensorView q);  // by settings.selection
  void decode_selected(const Call& call, ConstTensorView q, TensorView out, float* lse);
  void decode_in_groups(const Call& call, ConstTensorView q, TensorView out, float* lse);
  ResolveParams resolve_params(const Call& call, int32_t begin) const;
  // Without tokens to attend to.
  AttendParams attend_params(const Call& call, ConstTensorView q, TensorView out, float* lse) const;
  // For one wave of the sets.
  AttendParams attend_sets(const Call& call, int32_t begin, ConstTensorView q, TensorView out,
                           float* lse) const;
  void fetch_wave(const Call& call);
  void await_wave(const Call& call, bool first);
  void decode_dense(const Call& call, ConstTensorView q, TensorView out, float* lse);
  void decode_in_place(const Call& call, AttendParams params);
  void decode_streamed(const Call& call, AttendParams params);
  void prefill(const Call& call, ConstTensorView q, TensorView out, float* lse);
  void prefill_staged(const Call& call, PrefillParams params);

  Device& device_;
  const StepSettings& settings_;
  RowTransfers window_rows_;
  std::unique_ptr<RowTransfers> rows_;  // of the other layers
  Prefetcher prefetcher_;
  std::vector<MemberLoad> members_;  // of the planned step; a member to keep its capacity
  GroupMemo groups_;
};

}  // namespace fasa
