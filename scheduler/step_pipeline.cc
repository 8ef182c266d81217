#include "scheduler/step_pipeline.h"

#include <algorithm>
#include <string>

#include "scheduler/selection/selection_stage.h"
#include "scheduler/step_pipeline_call.h"

namespace fasa {

StepPipeline::StepPipeline(Device& device, const StepSettings& settings)
    : device_(device), settings_(settings), prefetcher_(device, settings), groups_(settings) {
  if (settings.rows_on_device) return;  // nothing is ever copied
  for (int i = 0; i < settings.copy_streams; ++i) {
    copy_streams_.push_back(
        device.create_stream(StreamPriority::kHigh, "copy " + std::to_string(i)));
  }
  for (int i = 0; i < std::max(settings.copy_streams, HeadGroups::kMax); ++i) {
    fetched_.push_back(device.create_event());
  }
  write_back_ = device.create_stream(StreamPriority::kNormal, "write-back");
  appended_ = device.create_event();
  resolved_ = device.create_event();
  staged_ = device.create_event();
  for (int i = 0; i < settings.layer_count(); ++i) written_.push_back(device.create_event());
  for (int half = 0; half < 2; ++half) {
    write_back_free_[half] = device.create_event();
    pages_free_[half] = device.create_event();
  }
}

void StepPipeline::record_written_back(EventView event) {
  if (!settings_.rows_on_device) device_.record(event, write_back_.view());
}

void StepPipeline::wait_written_back(int layer, StreamView stream, OperationTag tag) {
  if (settings_.on_device(layer)) return;
  device_.wait(stream, written_[static_cast<size_t>(layer)].view(), tag);
}

void StepPipeline::synchronize() {
  for (const Stream& stream : copy_streams_) device_.synchronize(stream.view());
  prefetcher_.synchronize();
  if (!settings_.rows_on_device) device_.synchronize(write_back_.view());
}

std::vector<StreamView> StepPipeline::streams() const {
  std::vector<StreamView> streams;
  if (settings_.rows_on_device) return streams;
  for (const Stream& stream : copy_streams_) streams.push_back(stream.view());
  streams.push_back(write_back_.view());
  prefetcher_.add_streams(streams);
  return streams;
}

bool StepPipeline::add_to_key(const StepBatch& step, const StepScratch& scratch,
                              std::vector<uint64_t>& key) {
  for (int layer = 0; layer < settings_.layer_count(); ++layer) {
    const Call call{step, scratch, layer, {}};
    const RowAccess access = step.access(StepMode::kDecode);
    key.push_back(static_cast<uint64_t>(access));
    if (!is_dense(call)) {
      key.push_back(0);
      if (!fits_hot_rows(call)) continue;
      const HeadGroups& groups =
          groups_.of(step, call.layer, prefetcher_.fetches_runners_up(layer));
      key.push_back(groups.codes_first() ? 1 : 0);
      for (int g = 0; g < groups.count(); ++g) {
        key.push_back(static_cast<uint64_t>(groups[g].end));
      }
      continue;
    }
    if (!settings_.on_device(layer) && access == RowAccess::kOverLink) return false;
    const int32_t wave = scratch.decode().dense_wave;
    key.push_back(static_cast<uint64_t>((longest_visible(call) + wave - 1) / wave));
  }
  prefetcher_.add_to_key(scratch, key);
  return true;
}

StreamView StepPipeline::copy_stream(int layer, int index) const {
  return copy_streams_[static_cast<size_t>(layer + index) % copy_streams_.size()].view();
}

void StepPipeline::append(const StepBatch& step, const StepScratch& scratch, int layer,
                          ConstTensorView k, ConstTensorView v, StreamView compute) {
  const Cause cause = step.any(StepMode::kPrefill) ? Cause::kPrefill : Cause::kCompute;
  const Call call{step, scratch, layer, compute, cause};
  if (layer == 0) {
    device_.wait(compute, step.tables_ready, call.tag());
    if (step.probe != nullptr) step.probe->mark(StepProbe::kBegin, compute);
  }
  const bool on_host = !settings_.on_device(layer);
  if (on_host) {
    // The write-back buffer and the protected rows' slots are overwritten: their previous rows must
    // be on the host, where copy streams read them.
    wait_written_back(layer, compute, call.tag());
    for (const Stream& copy : copy_streams_) wait_written_back(layer, copy.view(), call.tag());
    if (step.any(StepMode::kPrefill)) fill_write_back_buffer(call);
  }
  const AppendParams params{.step = layer_params(settings_, step, layer), .k = k, .v = v};
  device_.enqueue(params, compute, call.tag());
  if (on_host) write_back(call, params.step);
}

void StepPipeline::write_back(const Call& call, const StepParams& params) {
  const StreamView stream = write_back_.view();
  const OperationTag tag = tag_of(call.layer, Cause::kWriteBack);
  device_.record(appended_.view(), call.compute);
  device_.wait(stream, appended_.view(), tag);
  device_.enqueue(WriteBackParams{.step = params}, stream, tag);
  device_.record(written_[static_cast<size_t>(call.layer)].view(), stream);
  device_.record(write_back_free_[call.settings(settings_).index % 2].view(), stream);
}

// A chunk that begins inside a page also attends to that page's older rows.
void StepPipeline::fill_write_back_buffer(const Call& call) {
  const CacheLayout& layout = settings_.layout;
  const int index = call.settings(settings_).index;
  const int half = index % 2;
  const StreamView copy = copy_stream(call.layer, 0);
  device_.wait(call.compute, write_back_free_[half].view(), call.tag());
  device_.record(resolved_.view(),
                 call.compute);  // compute no longer reads the write-back buffer
  device_.wait(copy, resolved_.view(), call.tag());
  const int64_t offset = write_back_offset(call.step, index);
  for (size_t i = 0; i < call.step.on_host.size(); ++i) {
    const SequenceDesc& sequence = call.step.on_host[i];
    if (call.step.by_page || sequence.mode != StepMode::kPrefill) continue;
    if (sequence.access == RowAccess::kLocal || sequence.start % kPageTokens == 0) continue;
    const auto page = static_cast<size_t>(sequence.start / kPageTokens);
    device_.copy(sequence.write_back_buffer + offset,
                 call.step.row_blocks[i][page] + layout.row_offset(index, 0, 0),
                 static_cast<size_t>(layout.row_layer_bytes()), CopyKind::kHostToDevice, copy,
                 call.tag());
  }
  device_.record(staged_.view(), copy);
  device_.wait(call.compute, staged_.view(), call.tag());
}

void StepPipeline::attend(const StepBatch& step, const StepScratch& scratch, int layer,
                          ConstTensorView q, TensorView out, float* lse, StreamView compute) {
  const Call call{step, scratch, layer, compute};
  if (step.any(StepMode::kDecode)) {
    if (is_dense(call)) {
      prefetcher_.prefetch_after(step, scratch, layer, written_, compute);
      decode_dense(call, q, out, lse);
    } else {
      decode_selected(call, q, out, lse);
    }
  }
  if (step.any(StepMode::kPrefill)) {
    prefill({step, scratch, layer, compute, Cause::kPrefill}, q, out, lse);
  }
}

// True if scoring can be skipped because its result is known. With rows over the link, only dense
// layers are streamed whole: small contexts fit the hot rows.
bool StepPipeline::is_dense(const Call& call) const {
  const LayerSettings& layer = call.settings(settings_);
  if (layer.dense) return true;
  if (settings_.selection_evicts) return false;
  return std::all_of(
      call.step.on_host.begin(), call.step.on_host.end(), [&](const SequenceDesc& sequence) {
        if (sequence.mode != StepMode::kDecode) return true;
        if (sequence.access == RowAccess::kOverLink) return false;
        const int32_t visible = sequence.end() - first_visible(sequence.start, layer.window);
        return layer.budget.of(visible, settings_.budget_floor()) == visible;
      });
}

void StepPipeline::decode_selected(const Call& call, ConstTensorView q, TensorView out,
                                   float* lse) {
  if (fits_hot_rows(call)) return decode_in_groups(call, q, out, lse);
  const DecodeScratch& scratch = call.scratch.decode();
  const bool over_link = call.step.access(StepMode::kDecode) == RowAccess::kOverLink;
  if (settings_.selection) {
    choose(call, q);
  } else {
    const SelectParams params = select_params(call, q);
    // The claims read the list that the select writes.
    if (params.runners_up.capacity > 0) prefetcher_.wait_for_claims(call.layer, call.compute);
    device_.enqueue(params, call.compute, call.tag());
  }
  if (!call.step.sources.empty()) fetch_selected(call);
  if (settings_.selected_per_query_head) {
    attend_per_query_head(call, q, out, lse);
    return;
  }
  prefetcher_.wait_for_claims(call.layer, call.compute);
  for (int32_t begin = 0; begin < scratch.selected_capacity; begin += scratch.wave) {
    device_.enqueue(resolve_params(call, begin), call.compute, call.tag());
    AttendParams params = attend_params(call, begin, q, out, lse);
    if (over_link) {
      fetch_wave(call, scratch.wave);
      // Attends to codes while rows are fetched. Tiles of rows alone are rarely complete (one in
      // thirty at a hit rate of 0.9) and not worth a launch.
      if (params.low_bit.capacity > 0 || params.low_bit_pages.capacity > 0) {
        params.phase = AttendPhase::kReadyTiles;
        device_.enqueue(params, call.compute, call.tag());
        params.phase = AttendPhase::kRemainingTiles;
      }
      wait_for_rows(call, begin == 0);
    }
    device_.enqueue(params, call.compute, call.tag());
  }
}

// Parameters for one wave of the set.
ResolveParams StepPipeline::resolve_params(const Call& call, int32_t begin) const {
  const DecodeScratch& scratch = call.scratch.decode();
  StepParams step = layer_params(settings_, call.step, call.layer);
  if (call.step.by_page) step.layout.sinks = step.layout.recent = 0;
  return {.step = step,
          .begin = begin,
          .end = begin + scratch.wave,
          .step_number = call.step.step_number,
          .replacement = settings_.replacement,
          .selected_capacity = scratch.selected_capacity,
          .sets = scratch.sets,
          .selected_sizes = scratch.selected_sizes,
          .fetch_buffer = scratch.fetch_buffer,
          .rows = scratch.rows,
          .tile_ready = scratch.tile_ready,
          .fetches = scratch.fetches,
          .fetch_counts = scratch.fetch_counts,
          .counters = call.step.counters + call.layer};
}

AttendParams StepPipeline::attend_params(const Call& call, int32_t begin, ConstTensorView q,
                                         TensorView out, float* lse) const {
  const DecodeScratch& scratch = call.scratch.decode();
  const int32_t end = begin + scratch.wave;
  AttendParams params{.step = layer_params(settings_, call.step, call.layer),
                      .q = q,
                      .scale = settings_.scale,
                      .window = call.settings(settings_).window,
                      .phase = AttendPhase::kAllTiles,
                      .begin = begin,
                      .end = end,
                      .first_wave = begin == 0,
                      .last_wave = end >= scratch.selected_capacity,
                      .selected_sizes = scratch.selected_sizes,
                      .rows = scratch.rows,
                      .tile_ready = scratch.tile_ready,
                      .sets = scratch.sets,
                      .selected_capacity = scratch.selected_capacity,
                      .pages = {},
                      .partials = scratch.partials,
                      .state = scratch.state,
                      .out = out,
                      .lse = lse};
  if (params.last_wave) {
    params.low_bit = scratch.low_bit;
    params.low_bit_pages = scratch.low_bit_pages;
    params.low_bit_partials = scratch.low_bit_partials;
  }
  return params;
}

SelectParams StepPipeline::select_params(const Call& call, ConstTensorView q) const {
  const LayerSettings& layer = call.settings(settings_);
  const DecodeScratch& scratch = call.scratch.decode();
  return {.step = layer_params(settings_, call.step, call.layer),
          .q = q,
          .budget = layer.budget,
          .window = layer.window,
          .page_tokens = settings_.page_tokens,
          .selected_capacity = scratch.selected_capacity,
          .sets = scratch.sets,
          .selected_sizes = scratch.selected_sizes,
          .counters = call.step.counters + call.layer,
          .scratch = scratch.select,
          .low_bit_budget = layer.low_bit,
          .low_bit = scratch.low_bit,
          .low_bit_pages = scratch.low_bit_pages,
          .runners_up = prefetcher_.runners_up(scratch, call.layer)};
}

void StepPipeline::choose(const Call& call, ConstTensorView q) {
  device_.launch(
      call.compute, SelectParams::kName,
      [stage = SelectionStage{settings_, call.step, select_params(call, q)}] {
        return stage.select();
      },
      call.tag());
}

// One wave: the cpu device has all rows in memory.
void StepPipeline::attend_per_query_head(const Call& call, ConstTensorView q, TensorView out,
                                         float* lse) {
  const DecodeScratch& scratch = call.scratch.decode();
  const SelectionStage stage{settings_, call.step, select_params(call, q)};
  stage.place_rows(scratch.wave, scratch.rows);
  StepParams step = stage.params.step;
  step.layout = per_query_head(step.layout);
  device_.enqueue(AttendParams{.step = step,
                               .q = q,
                               .scale = settings_.scale,
                               .window = stage.params.window,
                               .phase = AttendPhase::kAllTiles,
                               .begin = 0,
                               .end = scratch.wave,
                               .first_wave = true,
                               .last_wave = true,
                               .selected_sizes = scratch.selected_sizes,
                               .rows = scratch.rows,
                               .tile_ready = nullptr,
                               .sets = scratch.sets,
                               .selected_capacity = scratch.selected_capacity,
                               .pages = {},
                               .partials = scratch.partials,
                               .state = scratch.state,
                               .out = out,
                               .lse = lse},
                  call.compute, call.tag());
}

// Deals the heads of all sequences over the copy streams in turn: every stream has a part of each
// sequence, so that a sequence with many misses does not occupy one stream alone.
void StepPipeline::fetch_wave(const Call& call, int32_t wave) {
  const DecodeScratch& scratch = call.scratch.decode();
  const int count = call.step.count();
  const int streams =
      std::min(count * settings_.layout.kv_heads, static_cast<int>(copy_streams_.size()));
  device_.record(resolved_.view(), call.compute);
  const OperationTag tag = tag_of(call.layer, Cause::kMiss);
  for (int i = 0; i < streams; ++i) {
    const StreamView copy = copy_stream(call.layer, i);
    device_.wait(copy, resolved_.view(), tag);
    // Fetches include the newest row.
    if (call.step.by_page) wait_written_back(call.layer, copy, tag);
    if (i == 0) call.step.mark(StepProbe::kFetchBegin, call.layer, copy);
    device_.enqueue(GatherParams{.layout = settings_.layout,
                                 .count = count,
                                 .wave = wave,
                                 .fetches = scratch.fetches,
                                 .fetch_counts = scratch.fetch_counts,
                                 .first = i,
                                 .stride = streams},
                    copy, tag);
    if (i == 0) call.step.mark(StepProbe::kFetchEnd, call.layer, copy);
    device_.record(fetched_[static_cast<size_t>(i)].view(), copy);
  }
}

// Predicts later layers while misses are fetched: compute has no other work then.
void StepPipeline::wait_for_rows(const Call& call, bool first_wave) {
  if (first_wave) {
    prefetcher_.prefetch_after(call.step, call.scratch, call.layer, written_, call.compute);
  }
  call.step.mark(StepProbe::kBubble, call.layer, call.compute);
  for (size_t i = 0; i < copy_streams_.size(); ++i) {
    device_.wait(call.compute, fetched_[i].view(), call.tag());
  }
  prefetcher_.wait_for_rows(call.layer, call.compute);
  call.step.mark(StepProbe::kArrived, call.layer, call.compute);
}

}  // namespace fasa
