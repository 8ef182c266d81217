// Processes a step layer by layer, enqueued on the caller's compute stream and on internal streams,
// ordered only by events: append, write back, select, resolve, gather, attend.
//
//   compute   append -> select of a group of heads -> select of the next -> FAC of each group
//   copy                   \-> fetch of its misses ---/\-> fetch --------/
//   ahead     see prefetcher.h
//   write-back     \-> new rows to the host
//
// A set that may not fit the hot rows is processed in waves, all heads together:
//
//   compute   append -> select -> resolve -> FAC of ready tiles -----> FAC of the others, fold
//   copy                              \-> gather of the misses --/
#pragma once

#include <vector>

#include "kernels/params.h"
#include "offload/device.h"
#include "runtime/base/tensor_view.h"
#include "scheduler/plan/group_memo.h"
#include "scheduler/plan/step_plan.h"
#include "scheduler/prefetch/prefetcher.h"
#include "scheduler/step_batch.h"
#include "scheduler/step_scratch.h"
#include "scheduler/step_settings.h"

namespace fasa {

class StepPipeline {
 public:
  StepPipeline(Device& device, const StepSettings& settings);

  // The plan of a step's attention. The scratch suffices for the step.
  StepPlan plan(const StepBatch& step, const StepScratch& scratch, const PrefetchPlan& prefetch);
  // Call before the first layer of a step that may prefetch.
  void begin(const PrefetchPlan& plan, Predictor& predictor) { prefetcher_.begin(plan, predictor); }
  void append(const StepBatch& step, const StepScratch& scratch, int layer, ConstTensorView k,
              ConstTensorView v, StreamView compute);
  void attend(const StepBatch& step, const StepScratch& scratch, int layer, ConstTensorView q,
              TensorView out, float* lse, StreamView compute);

  // The internal streams that a step uses.
  std::vector<StreamView> streams() const;

  // Work enqueued on `stream` after this call sees the layer's rows in their final location.
  void wait_written_back(int layer, StreamView stream, OperationTag tag);
  // Call after the append of all layers: records their write-back in `event`.
  void record_written_back(EventView event);
  // Waits until host and device rows are idle. Throws DeviceError if work failed.
  void synchronize();

 private:
  struct Call;  // the arguments of one append or attend
  void fill_write_back_buffer(const Call& call);
  void write_back(const Call& call, const StepParams& params);
  SelectParams select_params(const Call& call, ConstTensorView q) const;
  void choose(const Call& call, ConstTensorView q);  // by settings.selection
  void attend_per_query_head(const Call& call, ConstTensorView q, TensorView out, float* lse);
  void decode_selected(const Call& call, ConstTensorView q, TensorView out, float* lse);
  void decode_in_groups(const Call& call, ConstTensorView q, TensorView out, float* lse);
  void fetch_group(const Call& call, const HeadGroups& groups, int group);
  ResolveParams resolve_params(const Call& call, int32_t begin) const;
  AttendParams attend_params(const Call& call, int32_t begin, ConstTensorView q, TensorView out,
                             float* lse) const;
  void fetch_wave(const Call& call, int32_t wave);
  void wait_for_rows(const Call& call, bool first_wave);
  // Load rows that are not in memory yet: those of the sets; all that a layer sees.
  void fetch_selected(const Call& call);
  void fetch_visible(const Call& call);
  void decode_dense(const Call& call, ConstTensorView q, TensorView out, float* lse);
  void decode_in_place(const Call& call, AttendParams params);
  void decode_streamed(const Call& call, AttendParams params);
  void prefill(const Call& call, ConstTensorView q, TensorView out, float* lse);
  void prefill_staged(const Call& call, PrefillParams params);
  // Copies pages [first, first + pages) of one layer side by side into half `half` of a double
  // buffer, after the readers of that half; compute waits for the copy.
  void stream_pages(const Call& call, size_t sequence, int first, int pages, std::byte* destination,
                    int half, Cause cause);
  StreamView copy_stream(int layer, int index) const;

  Device& device_;
  const StepSettings& settings_;
  std::vector<Stream> copy_streams_;  // copy streams
  Stream write_back_;
  Event appended_;
  Event resolved_;
  Event staged_;
  std::vector<Event> fetched_;  // per stream or head group
  std::vector<Event> written_;  // per layer: its rows are on the host
  Prefetcher prefetcher_;
  Event write_back_free_[2];         // by layer parity: the write-back buffer has been written back
  Event pages_free_[2];              // by half: compute has read the pages
  std::vector<RowBytes> wanted_;     // rows to load; a member to keep its capacity
  std::vector<CopyRange> copies_;    // a wave of pages; a member to keep its capacity
  std::vector<MemberLoad> members_;  // of the planned step; a member to keep its capacity
  GroupMemo groups_;
};

}  // namespace fasa
