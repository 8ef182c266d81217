// Attention over whole pages: dense layers, contexts within the budget, and prompts.
#include <algorithm>

#include "scheduler/selection/selection_stage.h"
#include "scheduler/step/step_executor_call.h"

namespace fasa {
namespace {

// Parameters of a single sequence of the step; tensors are indexed by its tokens and stay whole.
StepParams only(StepParams params, size_t sequence) {
  params.sequences += sequence;
  params.count = 1;
  return params;
}

}  // namespace

void StepExecutor::decode_dense(const Call& call, ConstTensorView q, TensorView out, float* lse) {
  const AttendParams params = attend_params(call, q, out, lse);
  call.transfers.load_visible(call.rows);
  if (call.plan().decode == DecodePath::kAllInPlace) {
    decode_in_place(call, params);
  } else {
    decode_streamed(call, params);
  }
}

void StepExecutor::decode_in_place(const Call& call, AttendParams params) {
  const int32_t wave = call.scratch.decode().dense_wave;
  for (int32_t i = 0; i < call.plan().waves; ++i) {
    params.begin = i * wave;
    params.end = params.begin + wave;
    params.first_wave = i == 0;
    params.last_wave = i + 1 == call.plan().waves;
    device_.enqueue(params, call.compute(), call.tag());
  }
}

void StepExecutor::decode_streamed(const Call& call, AttendParams params) {
  const DecodeScratch& scratch = call.scratch.decode();
  call.transfers.await_newest(call.rows);
  const StepParams all = params.step;
  int half = 0;
  for (size_t i = 0; i < call.step.on_host.size(); ++i) {
    const SequenceDesc& sequence = call.step.on_host[i];
    if (sequence.mode != StepMode::kDecode) continue;
    params.step = only(all, i);
    const int32_t seen = settings_.visible_tokens(call.layer(), sequence.end());
    const int32_t first = sequence.end() - seen;
    for (int32_t begin = 0; begin < seen; begin += scratch.dense_wave) {
      params.begin = begin;
      params.end = begin + scratch.dense_wave;
      params.first_wave = begin == 0;
      params.last_wave = params.end >= seen;
      params.pages = {};
      if (sequence.access == RowAccess::kLocal) {
        device_.enqueue(params, call.compute(), call.tag());
        continue;
      }
      const int page = (first + begin) / kPageTokens;
      const int last = pages_of(first + std::min(params.end, seen));
      call.transfers.stream(call.rows, {.sequence = i,
                                        .first = page,
                                        .pages = last - page,
                                        .destination = scratch.pages[half],
                                        .half = half});
      params.pages = {.data = scratch.pages[half], .first_page = page, .pages = last - page};
      device_.enqueue(params, call.compute(), call.tag());
      call.transfers.streamed(call.rows, half);
      half ^= 1;
    }
  }
}

void StepExecutor::prefill(const Call& call, ConstTensorView q, TensorView out, float* lse) {
  const LayerSettings& layer = call.settings;
  const PrefillScratch& scratch = call.scratch.prefill();
  PrefillParams params{.step = call.params(),
                       .q = q,
                       .scale = settings_.scale,
                       .window = layer.window,
                       .begin_page = 0,
                       .end_page = 0,
                       .first_wave = true,
                       .last_wave = true,
                       .pages = {},
                       .state = scratch.state,
                       .out = out,
                       .lse = lse};
  if (call.plan().prefill == PrefillPath::kFromLayerRows) {
    const SequenceDesc& sequence = call.step.on_host.front();
    params.end_page = pages_of(sequence.end());
    params.pages = {.data = call.rows.layer_rows.data, .first_page = 0, .pages = params.end_page};
    device_.enqueue(params, call.compute(), call.tag());
    return;
  }
  if (call.plan().prefill == PrefillPath::kInPlace) {
    for (const SequenceDesc& sequence : call.step.on_host) {
      if (sequence.mode == StepMode::kPrefill) {
        params.end_page = std::max(params.end_page, pages_of(sequence.end()));
      }
    }
    device_.enqueue(params, call.compute(), call.tag());
    if (settings_.selection_evicts && !layer.dense) {
      device_.launch(
          call.compute(), SelectParams::kName,
          [stage = SelectionStage{settings_, call.step, select_params(call, q)}] {
            return stage.observe_prefill();
          },
          call.tag());
    }
    return;
  }
  prefill_staged(call, params);
}

// Key pages in waves, copied side by side. The newest pages come from the write-back buffer, except
// that a caller's pages already hold all rows.
void StepExecutor::prefill_staged(const Call& call, PrefillParams params) {
  const PrefillScratch& scratch = call.scratch.prefill();
  const bool by_page = call.step.by_page;
  if (by_page) call.transfers.await_newest(call.rows);
  const StepParams all = params.step;
  int half = 0;
  for (size_t i = 0; i < call.step.on_host.size(); ++i) {
    const SequenceDesc& sequence = call.step.on_host[i];
    if (sequence.mode != StepMode::kPrefill) continue;
    params.step = only(all, i);
    params.first_wave = true;
    params.last_wave = false;
    const int end = pages_of(sequence.end());
    const bool in_place = !by_page && sequence.access == RowAccess::kLocal;
    const int past = by_page ? end : in_place ? 0 : sequence.start / kPageTokens;
    int page = in_place ? 0 : first_visible(sequence.start, params.window) / kPageTokens;
    for (; page < past; page += scratch.wave_pages, half ^= 1) {
      params.begin_page = page;
      params.end_page = std::min(past, page + scratch.wave_pages);
      params.last_wave = params.end_page == end && by_page;
      const int pages = params.end_page - page;
      call.transfers.stream(call.rows, {.sequence = i,
                                        .first = page,
                                        .pages = pages,
                                        .destination = scratch.pages[half],
                                        .half = half});
      params.pages = {.data = scratch.pages[half], .first_page = page, .pages = pages};
      device_.enqueue(params, call.compute(), call.tag());
      call.transfers.streamed(call.rows, half);
      params.first_wave = false;
    }
    if (by_page) continue;
    params.pages = {};
    params.begin_page = past;
    params.end_page = end;
    params.last_wave = true;
    device_.enqueue(params, call.compute(), call.tag());
  }
}

}  // namespace fasa
