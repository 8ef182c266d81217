#include "scheduler/step/step_executor.h"

#include "offload/store/open_store.h"
#include "scheduler/selection/selection_stage.h"
#include "scheduler/step/step_executor_call.h"

namespace fasa {

StepExecutor::StepExecutor(Device& device, const StepSettings& settings)
    : device_(device),
      settings_(settings),
      rows_(open_transfers(
          settings.rows, device,
          {.layers = settings.layer_count(),
           .copy_streams = settings.copy_streams,
           .head_groups = HeadGroups::kMax,
           .prefetch_streams =
               settings.prefetches(settings.max_hot_rows) ? settings.prefetch_streams() : 0})),
      prefetcher_(device, settings, *rows_),
      groups_(settings) {}

StepExecutor::Call StepExecutor::call(const StepContext& step, const StepScratch& scratch,
                                      int layer, StreamView compute, Cause cause) {
  return {step, scratch, settings_.layer(layer), row_call(settings_, step, layer, compute, cause),
          transfers(layer)};
}

StepPlan StepExecutor::plan(const StepContext& step, const StepScratch& scratch,
                            const PrefetchPlan& prefetch) {
  members_.clear();
  for (size_t i = 0; i < step.on_host.size(); ++i) {
    const SequenceDesc& sequence = step.on_host[i];
    if (sequence.tokens == 0) continue;  // it has no token in this round
    members_.push_back({.mode = sequence.mode,
                        .end = sequence.end(),
                        .access = sequence.access,
                        .hot_rows = sequence.hot_rows,
                        .copied_pages = step.copied_pages(i)});
  }
  return plan_step(settings_,
                   {.members = members_,
                    .decoded = step.decoded,
                    .together = step.together,
                    .held = scratch.capacities().decode,
                    .prefetch = prefetch,
                    .host_takes_part = step.probe != nullptr || step.pending()},
                   &groups_);
}

void StepExecutor::append(const StepContext& step, const StepScratch& scratch, int layer,
                          ConstTensorView k, ConstTensorView v, StreamView compute) {
  const Cause cause = step.any(StepMode::kPrefill) ? Cause::kPrefill : Cause::kCompute;
  const Call call = this->call(step, scratch, layer, compute, cause);
  if (layer == 0 || step.piece) {
    device_.wait(compute, step.tables_ready, call.tag());
    if (step.probe != nullptr) step.probe->mark(StepProbe::kBegin, compute);
  }
  if (step.probe != nullptr && layer == step.probe->layer()) {
    step.probe->mark(StepProbe::kLayerBegin, compute);
  }
  if (step.probe != nullptr && layer == step.probe->layer() + 1) {
    step.probe->mark(StepProbe::kLayerEnd, compute);
  }
  if (call.rows.layer_rows.load) call.transfers.load_layer(call.rows);
  call.transfers.before_append(call.rows);
  device_.enqueue(AppendParams{.step = call.params(), .k = k, .v = v}, compute, call.tag());
  call.transfers.after_append(call.rows);
}

void StepExecutor::attend(const StepContext& step, const StepScratch& scratch, int layer,
                          ConstTensorView q, TensorView out, float* lse, StreamView compute) {
  const Call call = this->call(step, scratch, layer, compute);
  if (step.piece) device_.wait(compute, step.tables_ready, call.tag());
  const DecodePath path = call.plan().decode;
  if (path == DecodePath::kAllInPlace || path == DecodePath::kAllStreamed) {
    prefetcher_.prefetch_after(step, scratch, layer, compute);
    decode_dense(call, q, out, lse);
  } else if (path == DecodePath::kSelectedInGroups) {
    decode_in_groups(call, q, out, lse);
  } else if (path != DecodePath::kNone) {
    decode_selected(call, q, out, lse);
  }
  if (call.plan().prefill != PrefillPath::kNone) {
    prefill(this->call(step, scratch, layer, compute, Cause::kPrefill), q, out, lse);
  }
}

void StepExecutor::decode_selected(const Call& call, ConstTensorView q, TensorView out,
                                   float* lse) {
  const DecodeScratch& scratch = call.scratch.decode();
  const LayerPlan& plan = call.plan();
  if (settings_.selection) {
    choose(call, q);
  } else {
    const SelectParams params = select_params(call, q);
    // The claims read the list that the select writes.
    if (params.runners_up.capacity > 0) call.transfers.await_claims(call.rows);
    device_.enqueue(params, call.compute(), call.tag());
  }
  call.transfers.load_sets(call.rows, {.positions = scratch.sets,
                                       .sizes = scratch.selected_sizes,
                                       .capacity = scratch.selected_capacity});
  call.transfers.await_claims(call.rows);
  for (int32_t wave = 0; wave < plan.waves; ++wave) {
    const int32_t begin = wave * scratch.wave;
    device_.enqueue(resolve_params(call, begin), call.compute(), call.tag());
    AttendParams params = attend_sets(call, begin, q, out, lse);
    if (plan.decode == DecodePath::kSelectedInWaves) {
      fetch_wave(call);
      // Attends to codes while rows are fetched. Tiles of rows alone are rarely complete (one in
      // thirty at a hit rate of 0.9) and not worth a launch.
      if (params.low_bit.capacity > 0 || params.low_bit_pages.capacity > 0) {
        params.phase = AttendPhase::kReadyTiles;
        device_.enqueue(params, call.compute(), call.tag());
        params.phase = AttendPhase::kRemainingTiles;
      }
      await_wave(call, wave == 0);
    }
    device_.enqueue(params, call.compute(), call.tag());
  }
}

// Parameters for one wave of the set.
ResolveParams StepExecutor::resolve_params(const Call& call, int32_t begin) const {
  const DecodeScratch& scratch = call.scratch.decode();
  StepParams step = call.params();
  if (call.step.by_page) step.layout.sinks = step.layout.recent = 0;
  return {.step = step,
          .begin = begin,
          .end = begin + scratch.wave,
          .step_number = call.step.step_number,
          .selected_capacity = scratch.selected_capacity,
          .sets = scratch.sets,
          .selected_sizes = scratch.selected_sizes,
          .fetch_buffer = scratch.fetch_buffer,
          .rows = scratch.rows,
          .tile_ready = scratch.tile_ready,
          .fetches = scratch.fetches,
          .fetch_counts = scratch.fetch_counts,
          .counters = call.step.counters + call.layer()};
}

AttendParams StepExecutor::attend_params(const Call& call, ConstTensorView q, TensorView out,
                                         float* lse) const {
  AttendParams params;
  params.step = call.params();
  params.q = q;
  params.scale = settings_.scale;
  params.window = call.settings.window;
  params.partials = call.scratch.decode().partials;
  params.state = call.scratch.decode().state;
  params.out = out;
  params.lse = lse;
  return params;
}

AttendParams StepExecutor::attend_sets(const Call& call, int32_t begin, ConstTensorView q,
                                       TensorView out, float* lse) const {
  const DecodeScratch& scratch = call.scratch.decode();
  AttendParams params = attend_params(call, q, out, lse);
  params.begin = begin;
  params.end = begin + scratch.wave;
  params.first_wave = begin == 0;
  params.last_wave = params.end >= scratch.selected_capacity;
  params.selected_sizes = scratch.selected_sizes;
  params.rows = scratch.rows;
  params.tile_ready = scratch.tile_ready;
  params.sets = scratch.sets;
  params.selected_capacity = scratch.selected_capacity;
  if (params.last_wave) {
    params.low_bit = scratch.low_bit;
    params.low_bit_pages = scratch.low_bit_pages;
    params.low_bit_partials = scratch.low_bit_partials;
  }
  return params;
}

SelectParams StepExecutor::select_params(const Call& call, ConstTensorView q) const {
  const LayerSettings& layer = call.settings;
  const DecodeScratch& scratch = call.scratch.decode();
  return {.step = call.params(),
          .q = q,
          .budget = layer.budget,
          .window = layer.window,
          .selected_capacity = scratch.selected_capacity,
          .sets = scratch.sets,
          .selected_sizes = scratch.selected_sizes,
          .counters = call.step.counters + call.layer(),
          .scratch = scratch.select,
          .page_capacity = scratch.select_pages,
          .low_bit_budget = layer.low_bit,
          .low_bit = scratch.low_bit,
          .low_bit_pages = scratch.low_bit_pages,
          .runners_up = prefetcher_.runners_up(call.step, scratch, call.layer())};
}

void StepExecutor::choose(const Call& call, ConstTensorView q) {
  device_.launch(
      call.compute(), SelectParams::kName,
      [stage = SelectionStage{settings_, call.step, select_params(call, q)}] {
        return stage.select();
      },
      call.tag());
}

void StepExecutor::fetch_wave(const Call& call) {
  const DecodeScratch& scratch = call.scratch.decode();
  call.transfers.fetch_wave(call.rows, {.layout = call.params().layout,
                                        .count = call.step.count(),
                                        .wave = scratch.wave,
                                        .fetches = scratch.fetches,
                                        .fetch_counts = scratch.fetch_counts});
}

// Predicts later layers while misses are fetched: compute has no other work then.
void StepExecutor::await_wave(const Call& call, bool first) {
  if (first) prefetcher_.prefetch_after(call.step, call.scratch, call.layer(), call.compute());
  call.transfers.await_wave(call.rows);
}

}  // namespace fasa
