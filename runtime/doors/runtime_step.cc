// A step from begin_step to end_step or abort_step.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <unordered_set>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/doors/memory_guard.h"
#include "runtime/doors/runtime_impl.h"
#include "runtime/doors/tensor_check.h"

namespace fasa {
int Runtime::Impl::most_decoded(SequenceId id) const {
  if (!decodes_several_) return 1;
  return kPageTokens - static_cast<int>(find(id).length() % kPageTokens);
}

void Runtime::Impl::check_step(std::span<const StepSequence> sequences) const {
  require_no_step("begin_step");
  const bool decodes = std::any_of(sequences.begin(), sequences.end(),
                                   [](const auto& part) { return part.mode == StepMode::kDecode; });
  if (decodes) prefetch_.require_query_source();
  if (sequences.empty()) throw UsageError("begin_step: no sequences");
  std::unordered_set<uint64_t> seen;
  for (const StepSequence& part : sequences) {
    const KvSequence& sequence = find_usable(part.sequence);
    if (!seen.insert(index_of(part.sequence)).second) {
      throw UsageError(
          fmt::format("begin_step: sequence {} is named twice", index_of(part.sequence)));
    }
    const int most = most_decoded(part.sequence);
    if (part.tokens < 1 || (part.mode == StepMode::kDecode && part.tokens > most)) {
      throw UsageError(fmt::format(
          "begin_step: {} new tokens; allowed: 1 or more to prefill, 1 to decode (on the cpu "
          "device, "
          "with a selection that evicts nothing, as many as the newest page of {} has room for)",
          part.tokens, kPageTokens));
    }
    if (sequence.length() + part.tokens > INT32_MAX) {
      throw UsageError(fmt::format("begin_step: {} tokens in one sequence; allowed: {}",
                                   sequence.length() + part.tokens, INT32_MAX));
    }
  }
}

void Runtime::Impl::describe(OpenStep& step) {
  const CacheLayout& layout = settings_.layout;
  auto& descs = step.slot->host(DescriptorBuffer::kStep);
  auto& restore = step.slot->host(DescriptorBuffer::kRestore);
  descs.clear();
  restore.clear();
  step.tables.row_blocks.clear();
  step.tables.device_row_blocks.clear();
  step.tables.histories.clear();
  int64_t stage_pages = 0;
  for (const StepSequence& part : step.sequences) {
    KvSequence& sequence = find(part.sequence);
    SequenceDesc desc = sequence.describe();
    if (sequence.stale()) restore.push_back(desc);
    desc.mode = part.mode;
    desc.first_token = static_cast<int32_t>(step.tokens);
    desc.tokens = part.tokens;
    desc.stamp = stamp_;
    step.tokens += part.tokens;
    step.decodes |= part.mode == StepMode::kDecode;
    if (part.mode == StepMode::kPrefill && !settings_.rows_on_device) {
      desc.stage = scratch_.prefill().stage + stage_pages * layout.row_layer_bytes();
      stage_pages += pages_of(part.tokens) + 1;
    }
    descs.push_back(desc);
    step.tables.row_blocks.push_back(sequence.row_blocks());
    step.tables.histories.push_back(sequence.history());
    step.tables.device_row_blocks.push_back(sequence.device_rows().blocks());
  }
  step.tables.on_device = step.slot->device(DescriptorBuffer::kStep);
  step.tables.second_stage = scratch_.prefill().second_stage;
  step.tables.on_host = descs;
}

// On the cpu device kernels read the host's memory, so nothing has to be uploaded. What a token
// attends to lies in sealed pages and in the tail, which holds the page of all these tokens.
void Runtime::Impl::describe_each(OpenStep& step) const {
  if (std::none_of(step.sequences.begin(), step.sequences.end(), [](const StepSequence& part) {
        return part.mode == StepMode::kDecode && part.tokens > 1;
      })) {
    return;
  }
  StepBatch& tables = step.each_tables.emplace(step.tables);
  tables.row_blocks.clear();
  tables.device_row_blocks.clear();
  tables.histories.clear();
  tables.sources.clear();
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    const SequenceDesc& whole = step.tables.on_host[i];
    const bool apart = whole.mode == StepMode::kDecode;
    for (int token = 0; token < (apart ? whole.tokens : 1); ++token) {
      SequenceDesc& one = step.each.emplace_back(whole);
      if (apart) one.first_token += token, one.start += token, one.tokens = 1;
      tables.row_blocks.push_back(step.tables.row_blocks[i]);
      tables.device_row_blocks.push_back(step.tables.device_row_blocks[i]);
      tables.histories.push_back(step.tables.histories[i]);
      if (!step.tables.sources.empty()) tables.sources.push_back(step.tables.sources[i]);
    }
  }
  tables.on_device = step.each.data();
  tables.on_host = step.each;
}

void Runtime::Impl::enqueue_tables(OpenStep& step) {
  const StreamView control = control_.view();
  for (const StepSequence& part : step.sequences) {
    KvSequence& sequence = find(part.sequence);
    sequence.upload_tables(control);
    sequence.empty_hot_rows(control);
  }
  describe(step);  // after the uploads: tables may have moved
  step.slot->upload(control);
  const auto& restore = step.slot->host(DescriptorBuffer::kRestore);
  if (!restore.empty()) {
    const StepParams params{.layout = settings_.layout,
                            .sequences = step.slot->device(DescriptorBuffer::kRestore),
                            .count = static_cast<int>(restore.size()),
                            .layer = 0,
                            .slice_dims = slice_dims_.as<int16_t>()};
    device_.enqueue(RestoreParams{.step = params, .rows_on_device = settings_.rows_on_device},
                    control, tag_of(-1, Cause::kControl));
    for (const StepSequence& part : step.sequences) find(part.sequence).restored();
  }
  device_.record(tables_ready_.view(), control);
}

// Steps that guess and steps that were measured take turns with the host by themselves: what a slot
// measured is read when its next step begins, which has to wait for that step anyway.
void Runtime::Impl::read_probe(size_t slot) {
  StepProbe& probe = probes_[slot];
  if (probe.layer() < 0) return;
  prefetch_.measured(probed_depths_[slot], probe.read(geometry_.layers), device_.transfers());
  probe.stop();
}

void Runtime::Impl::plan_prefetch(const OpenStep& step) {
  const auto all_decode =
      std::all_of(step.sequences.begin(), step.sequences.end(),
                  [](const StepSequence& part) { return part.mode == StepMode::kDecode; });
  PrefetchPlan plan;
  if (all_decode) {
    const bool remembered = std::any_of(
        step.sequences.begin(), step.sequences.end(),
        [this](const StepSequence& part) { return find(part.sequence).remembers_hot_rows(); });
    plan = prefetch_.plan(static_cast<int>(step.sequences.size()), remembered);
    if (prefetch_.measures(stamp_)) {
      probes_[step.slot_index].start(prefetch_.measured_layer());
      probed_depths_[step.slot_index] = plan.depth;
    }
  }
  pipeline_->begin(plan, prefetch_.predictor());
}

// Stamps have run out of bits: hot rows start empty again.
void Runtime::Impl::restart_stamps() {
  drain();
  for (const auto& [id, sequence] : sequences_) sequence->forget_hot_rows();
  stamp_ = 0;
}

void Runtime::Impl::begin_step(std::span<const StepSequence> sequences) {
  check_step(sequences);
  fetch_rows_for(sequences);
  if (stamp_ >= most_steps_) restart_stamps();
  OpenStep step;
  step.sequences.assign(sequences.begin(), sequences.end());
  step.slot_index = static_cast<size_t>(stamp_) % slots_.size();
  step.slot = &slots_[step.slot_index];
  free_slot(step.slot_index);
  for (const StepSequence& part : sequences) find_usable(part.sequence);
  require_streams();
  MemoryGuard guard(*this);
  prepare_memory(sequences, guard);
  read_probe(step.slot_index);
  ++stamp_;
  for (const StepSequence& part : sequences) note_control_work(part.sequence);
  enqueue_tables(step);
  step.tables.slice_dims = slice_dims_.as<int16_t>();
  step.tables.slopes = geometry_.alibi_slopes.empty() ? nullptr : slopes_.as<float>();
  step.tables.counters = counters_.layers();
  step.tables.stamp = StepStamp::of_device(step.slot->device_stamp());
  step.tables.tables_ready = tables_ready_.view();
  plan_prefetch(step);
  StepProbe& probe = probes_[step.slot_index];
  step.tables.probe = probe.layer() >= 0 ? &probe : nullptr;
  describe_sources(step);
  describe_each(step);
  AtWork& work = at_work_[step.slot_index];
  for (const StepSequence& part : sequences) work.in_step.push_back(index_of(part.sequence));
  work.before_it = std::exchange(beside_steps_, {});
  step_ = std::move(step);
  guard.keep();
}

void Runtime::Impl::check_layer(const char* call, int layer, int next) const {
  if (!step_) throw UsageError(fmt::format("{} outside a step; call begin_step first", call));
  if (step_->failure) throw DeviceError(*step_->failure);
  if (layer != next || layer >= geometry_.layers) {
    throw UsageError(fmt::format("{} of layer {}; layers come in order, layer {} of {} is next",
                                 call, layer, next, geometry_.layers));
  }
}

void Runtime::Impl::check_tensor(const char* name, const ConstTensorView& view, int64_t heads,
                                 int64_t dim) const {
  require_shape(name, view, step_->tokens, heads, dim);
}

void Runtime::Impl::append(int layer, ConstTensorView k, ConstTensorView v, StreamView stream) {
  check_layer("append", layer, step_ ? step_->appended : 0);
  check_tensor("k", k, geometry_.kv_heads, geometry_.key_dim);
  check_tensor("v", v, geometry_.kv_heads, geometry_.value_dim);
  step_->compute = stream;
  if (layer == 0 && sampler_) {
    device_.wait(stream, sampler_->sampled(), tag_of(-1, Cause::kControl));
  }
  step_->appended = layer + 1;
  if (!settings_.rows_on_device && !step_->recording) {
    counters_.add_written_back(layer, step_->tokens);
  }
  pipeline_->append(step_->tables, scratch_, layer, k, v, stream);
}

void Runtime::Impl::attend(int layer, ConstTensorView q, TensorView out, float* lse,
                           StreamView stream) {
  check_layer("attend", layer, step_ ? step_->attended : 0);
  if (step_->appended <= layer) {
    throw UsageError(fmt::format("attend of layer {} before its append", layer));
  }
  check_tensor("q", q, geometry_.query_heads, geometry_.key_dim);
  check_tensor("out", out, geometry_.query_heads, geometry_.value_dim);
  step_->attended = layer + 1;
  const StepBatch& tables = step_->each_tables ? *step_->each_tables : step_->tables;
  pipeline_->attend(tables, scratch_, layer, q, out, lse, stream);
}

// Rows of a step lie in the residents or on a stream's way until they are written back; what was
// committed before is in the row blocks once that stream has passed the layer.
void Runtime::Impl::read(SequenceId id, int layer, int64_t first, TensorView k, TensorView v,
                         StreamView stream) {
  KvSequence& sequence = find_usable(id);
  if (layer < 0 || layer >= geometry_.layers) {
    throw UsageError(
        fmt::format("read of layer {}; allowed: 0 to {}", layer, geometry_.layers - 1));
  }
  require_shape("k", k, k.tokens, geometry_.kv_heads, geometry_.key_dim);
  require_shape("v", v, k.tokens, geometry_.kv_heads, geometry_.value_dim);
  if (first < 0 || k.tokens < 0 || first > sequence.length() - k.tokens) {
    throw UsageError(fmt::format("read of tokens {} to {}; the sequence has {}", first,
                                 first + k.tokens - 1, sequence.length()));
  }
  fetch_pages(sequence, first / kPageTokens, pages_of(first + k.tokens));
  const OperationTag tag = tag_of(layer, Cause::kControl);
  require_streams();
  note_control_work(id);
  sequence.upload_tables(control_.view());
  device_.record(tables_ready_.view(), control_.view());
  device_.wait(stream, tables_ready_.view(), tag);
  pipeline_->wait_written_back(layer, stream, tag);
  device_.enqueue(ReadRowsParams{.layout = settings_.layout,
                                 .layer = layer,
                                 .row_blocks = sequence.describe().row_blocks,
                                 .first = static_cast<int32_t>(first),
                                 .rows_on_device = settings_.rows_on_device,
                                 .k = k,
                                 .v = v},
                  stream, tag);
  device_.record(rows_read_.view(), stream);
}

void Runtime::Impl::sample_hit_rate(EventView step_done) {
  if (device_.timeline() == nullptr || device_.host_work() == nullptr) return;
  if (!sampler_) sampler_.emplace(device_);
  sampler_->sample(step_done, counters_.all());
}

void Runtime::Impl::end_step() {
  if (!step_) throw UsageError("end_step outside a step");
  if (step_->failure) throw DeviceError(*step_->failure);
  const int layers = geometry_.layers;
  if (step_->appended != layers || (step_->attended != 0 && step_->attended != layers)) {
    throw UsageError(
        fmt::format("end_step after {} appended and {} attended of {} layers; go "
                    "through all of them or call abort_step",
                    step_->appended, step_->attended, layers));
  }
  if (step_->tables.probe != nullptr) step_->tables.probe->mark(StepProbe::kEnd, step_->compute);
  step_->slot->mark_done(step_->compute);
  pipeline_->record_written_back(step_->slot->written_back());
  if (!step_->launched) step_->slot->mark_streams(pipeline_->streams());
  for (const StepSequence& part : step_->sequences) {
    KvSequence& sequence = find(part.sequence);
    sequence.commit(part.tokens);
    if (part.mode == StepMode::kDecode) sequence.hot_rows_decoded();
  }
  if (step_->decodes) {
    counters_.add_decode_step();
    sample_hit_rate(step_->slot->done());
  }
  step_.reset();
}

// Whatever fails on the way, the step is over.
void Runtime::Impl::abort_step() {
  if (!step_) throw UsageError("abort_step outside a step");
  try {
    await_aborted();
    if (step_->failure) {
      log_warning(fmt::format("the aborted step had failed: {}", *step_->failure));
    }
  } catch (const std::bad_alloc&) {
    // No memory for the words.
  }
  for (const StepSequence& part : step_->sequences) find(part.sequence).invalidate();
  step_.reset();
}

void Runtime::Impl::await_aborted() {
  try {
    if (!step_->failure && step_->appended > 0) step_->slot->mark_done(step_->compute);
  } catch (const DeviceError& error) {
    mark_failed(at_work_[step_->slot_index].in_step, error.what());
    step_->failure = error.what();
  } catch (const std::bad_alloc&) {
    device_.synchronize(step_->compute);
  }
  drain();
}

}  // namespace fasa
