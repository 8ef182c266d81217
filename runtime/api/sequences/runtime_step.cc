// A step from begin_step to end_step or abort_step.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <unordered_set>
#include <utility>

#include "runtime/api/sequences/memory_guard.h"
#include "runtime/api/sequences/runtime.h"
#include "runtime/api/tensor_check.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fasa {

int Runtime::max_decoded(const KvSequence& sequence) const {
  if (settings_.selection_evicts) return 1;
  const int in_page = kPageTokens - static_cast<int>(sequence.length() % kPageTokens);
  return settings_.access() == RowAccess::kLocal ? in_page : std::min(in_page, kMaxDecoded);
}

int Runtime::max_drafted(const KvSequence& sequence) const {
  const int in_page = kPageTokens - static_cast<int>(sequence.length() % kPageTokens);
  const int most = std::max(1, std::min(max_decoded(sequence), in_page - 1));
  return sequence.linear() != nullptr ? std::min(most, sequence.linear()->max_drafted()) : most;
}

std::vector<StepPart> Runtime::find_parts(std::span<const StepSequence> sequences) {
  streams_.require_no_step("begin_step");
  if (sequences.empty()) throw UsageError("begin_step: no sequences");
  std::vector<StepPart> parts;
  std::unordered_set<uint64_t> seen;
  for (const StepSequence& part : sequences) {
    prompts_.require_none("begin_step", part.sequence);
    KvSequence& sequence = sequences_.find_usable(part.sequence);
    if (!seen.insert(index_of(part.sequence)).second) {
      throw UsageError(
          fmt::format("begin_step: sequence {} occurs twice", index_of(part.sequence)));
    }
    const int most = max_decoded(sequence);
    if (part.tokens < 1 || (part.mode == StepMode::kDecode && part.tokens > most)) {
      throw UsageError(
          fmt::format("begin_step: {} new tokens; allowed: 1 or more to prefill, 1 to {} to decode "
                      "(SequenceInfo::max_decoded)",
                      part.tokens, most));
    }
    if (sequence.length() + part.tokens > INT32_MAX) {
      throw UsageError(fmt::format("begin_step: {} tokens in one sequence; allowed: {}",
                                   sequence.length() + part.tokens, INT32_MAX));
    }
    parts.push_back({part.sequence, &sequence, part.tokens, part.mode});
  }
  return parts;
}

void Runtime::begin_step(std::span<const StepSequence> called) {
  OpenStep step;
  step.sequences = find_parts(called);
  const std::span<const StepPart> sequences = step.sequences;
  memory_.load_for(sequences);
  describer_.make_room(DecodeRounds::most(sequences));
  step.slot_index = streams_.free_slot();
  step.slot = &streams_.slots()[step.slot_index];
  streams_.require(sequences);
  MemoryGuard guard(streams_, prefetch_);
  const DecodeRounds rounds = memory_.prepare(sequences, guard);
  begin_memories(step);
  streams_.require(sequences);
  timing_.read(step.slot_index);
  describer_.advance();
  Fence before = sequences_.take_fence();
  for (const StepPart& part : sequences) {
    before = std::max(before, part.sequence->overwritten());
  }
  streams_.order(before);
  for (const StepPart& part : sequences) {
    streams_.note_control_work(*part.sequence);
  }
  describer_.describe(step, rounds);
  const PrefetchPlan prefetch = timing_.plan(step);
  step.tables.probe = timing_.probe(step.slot_index);
  describer_.describe_rounds(step, rounds);
  for (StepContext& round : step.attention()) {
    round.plan = engine_.executor().plan(round, engine_.scratch(), prefetch);
  }
  const PrefetchPlan& planned = step.attention().front().plan.prefetch;
  timing_.planned(planned);
  engine_.executor().begin(planned, prefetch_.predictor());
  streams_.note_step(sequences);
  streams_.step() = std::move(step);
  guard.keep();
}

void Runtime::begin_memories(OpenStep& step) {
  int64_t first = 0;
  for (const StepPart& part : step.sequences) {
    KvSequence& sequence = *part.sequence;
    sequence.begin(part.tokens, part.mode, false, streams_.for_memories(sequence));
    if (const LinearState* const state = sequence.linear()) {
      const auto parts = state->parts(0, part.tokens, first);
      step.linear.insert(step.linear.end(), parts.begin(), parts.end());
    }
    first += part.tokens;
  }
  std::stable_sort(step.linear.begin(), step.linear.end(),
                   [](const LinearPart& a, const LinearPart& b) { return a.wave < b.wave; });
}

// Returns the open step if `layer` is next by the counter `next`; throws UsageError otherwise.
OpenStep& Runtime::require_step(const char* call, int layer, int OpenStep::*next) {
  if (!streams_.step())
    throw UsageError(fmt::format("{} outside a step; call begin_step first", call));
  OpenStep& step = *streams_.step();
  if (step.failure) throw DeviceError(*step.failure);
  const int end = step.piece ? step.piece->layer + 1 : geometry().layers;
  if (layer != step.*next || layer >= end) {
    throw UsageError(
        fmt::format("{} of layer {}; layers must come in order, and layer {} of {} is next", call,
                    layer, step.*next, geometry().layers));
  }
  return step;
}

void Runtime::append(int layer, ConstTensorView k, ConstTensorView v, StreamView stream) {
  if (layer < geometry().layers && geometry().is_shared(layer)) {
    throw UsageError(fmt::format(
        "append of layer {}: it attends to the keys and values of layer {} and stores none; call "
        "attend alone",
        layer, geometry().kv_layer(layer)));
  }
  OpenStep& step = require_step("append", layer, &OpenStep::appended);
  const HeadShape heads = geometry().heads(layer);
  require_shape("k", k, step.tokens, heads.kv_heads, heads.key_dim);
  require_shape("v", v, step.tokens, heads.kv_heads, heads.value_dim);
  step.compute = stream;
  step.enqueued = true;
  if (layer == 0) engine_.counters().wait_sampled(stream);
  step.appended = layer + 1;
  if (settings_.access(layer) == RowAccess::kOverLink && !step.recording) {
    engine_.counters().add_written_back(layer, step.tokens);
  }
  engine_.executor().append(step.tables, engine_.scratch(), layer, k, v, stream);
}

void Runtime::attend(int layer, ConstTensorView q, TensorView out, float* lse, StreamView stream) {
  OpenStep& step = require_step("attend", layer, &OpenStep::attended);
  if (step.appended <= geometry().kv_layer(layer)) {
    throw UsageError(fmt::format("attend of layer {} before its append; call append first", layer));
  }
  const HeadShape heads = geometry().heads(layer);
  require_shape("q", q, step.tokens, geometry().query_heads, heads.key_dim);
  require_shape("out", out, step.tokens, geometry().query_heads, heads.value_dim);
  step.attended = layer + 1;
  step.compute = stream;
  step.enqueued = true;
  for (const StepContext& round : step.attention()) {
    engine_.executor().attend(round, engine_.scratch(), layer, q, out, lse, stream);
  }
}

void Runtime::run_layers(StreamView stream, std::span<const uint64_t> shape,
                         const std::function<void()>& layers) {
  if (!streams_.step() || streams_.step()->appended > 0 || streams_.step()->piece) {
    throw UsageError("run_layers: allowed once a step, between begin_step and the first append");
  }
  if (streams_.step()->failure) throw DeviceError(*streams_.step()->failure);
  recorder_.run(stream, shape, layers);
}

// Until write-back, a step's rows lie in the protected rows or a write-back buffer. Rows committed
// earlier are in the row blocks once the write-back stream has passed the layer.
void Runtime::read(SequenceId id, int layer, int64_t first, TensorView k, TensorView v,
                   StreamView stream) {
  KvSequence& sequence = sequences_.find_usable(id);
  if (layer < 0 || layer >= geometry().layers) {
    throw UsageError(
        fmt::format("read of layer {}; allowed: 0 to {}", layer, geometry().layers - 1));
  }
  const HeadShape heads = geometry().heads(layer);
  require_shape("k", k, k.tokens, heads.kv_heads, heads.key_dim);
  require_shape("v", v, k.tokens, heads.kv_heads, heads.value_dim);
  if (first < 0 || k.tokens < 0 || first > sequence.length() - k.tokens) {
    throw UsageError(fmt::format("read of tokens {} to {}; the sequence has {}", first,
                                 first + k.tokens - 1, sequence.length()));
  }
  const SequenceRows& rows = sequence.rows_of(layer);
  for (int64_t page = first / kPageTokens; page < pages_of(first + k.tokens); ++page) {
    if (rows.blocks()[static_cast<size_t>(page)] != nullptr) continue;
    throw UsageError(fmt::format("read of tokens {} to {}; page {} was freed (set_rollback_tokens)",
                                 first, first + k.tokens - 1, page));
  }
  sequence.rows().load(first / kPageTokens, pages_of(first + k.tokens));
  const OperationTag tag = tag_of(layer, Cause::kControl);
  streams_.require();
  streams_.order(sequence.overwritten());
  streams_.note_control_work(sequence);
  sequence.upload_tables(engine_.control());
  engine_.device().wait(stream, engine_.record_tables(), tag);
  engine_.executor().await_written_back(layer, stream, tag);
  const LayerSettings& own = settings_.layer(layer);
  engine_.device().enqueue(ReadRowsParams{.layout = settings_.layout_of(layer),
                                          .layer = own.index,
                                          .row_blocks = rows.device_blocks(),
                                          .first = static_cast<int32_t>(first),
                                          .access = settings_.access(layer),
                                          .k = k,
                                          .v = v},
                           stream, tag);
  streams_.record_read(stream);
}

std::span<const LinearPart> Runtime::linear_parts() {
  if (!streams_.step()) throw UsageError("linear_parts outside a step; call begin_step first");
  streams_.step()->computed = true;
  return streams_.step()->linear;
}

void Runtime::check_kept(const OpenStep& step, std::span<const int> kept) const {
  if (kept.empty()) return;
  if (kept.size() != step.sequences.size()) {
    throw UsageError(
        fmt::format("end_step: tokens that stay of {} sequences; allowed: of {}, or none",
                    kept.size(), step.sequences.size()));
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    const StepPart& part = step.sequences[i];
    if (kept[i] < 1 || kept[i] > part.tokens) {
      throw UsageError(fmt::format("end_step: {} tokens stay of sequence {}; allowed: 1 to {}",
                                   kept[i], index_of(part.id), part.tokens));
    }
    if (kept[i] == part.tokens) continue;
    const int most = max_drafted(*part.sequence);
    if (part.mode == StepMode::kDecode && part.tokens <= most) continue;
    throw UsageError(
        fmt::format("end_step: {} of {} tokens stay of sequence {}; allowed: all, or a part of a "
                    "decode step of up to {} tokens",
                    kept[i], part.tokens, index_of(part.id), most));
  }
}

void Runtime::end_step(std::span<const int> kept) {
  if (!streams_.step()) throw UsageError("end_step outside a step");
  OpenStep& step = *streams_.step();
  if (step.piece) throw UsageError("end_step inside a piece; call end_piece");
  if (step.failure) throw DeviceError(*step.failure);
  if (!step.went_through(settings_)) {
    throw UsageError(fmt::format(
        "end_step with {} of {} layers appended and {} of {} attended; go through all of them or "
        "call abort_step",
        step.appended, settings_.storing_layers(), step.attended, settings_.layer_count()));
  }
  if (!step.linear.empty() && !step.computed) {
    throw UsageError(
        "end_step: the model has layers with linear attention, and linear_parts() was not called; "
        "compute them in each step (Model::forward does)");
  }
  check_kept(step, kept);
  StepExecutor& executor = engine_.executor();
  if (step.tables.probe != nullptr) step.tables.probe->mark(StepProbe::kEnd, step.compute);
  step.slot->mark_done(step.compute);
  timing_.count_rows(step.slot_index, step.slot->done());
  executor.record_written_back(step.slot->written_back());
  if (!step.launched) step.slot->mark_streams(executor.streams());
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    const StepPart& part = step.sequences[i];
    part.sequence->commit(kept.empty() ? part.tokens : kept[i]);
  }
  timing_.ended(step);
  if (step.decodes) {
    engine_.counters().add_decode_step();
    engine_.counters().sample(step.slot->done());
  }
  streams_.step().reset();
}

// The step is over even if something fails on the way.
void Runtime::abort_step() {
  if (!streams_.step()) throw UsageError("abort_step outside a step");
  OpenStep& step = *streams_.step();
  if (step.piece) throw UsageError("abort_step inside a piece; call drop_chunk");
  try {
    streams_.await_aborted();
    if (step.failure) {
      log_warning(fmt::format("the aborted step had failed: {}", *step.failure));
    }
  } catch (const std::bad_alloc&) {
    // No memory for the message.
  }
  for (const StepPart& part : step.sequences) {
    part.sequence->abort(step.computed);
  }
  streams_.step().reset();
}

}  // namespace fasa
