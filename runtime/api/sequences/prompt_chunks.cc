#include "runtime/api/sequences/prompt_chunks.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/api/sequences/memory_guard.h"
#include "runtime/base/error.h"

namespace fasa {

PromptChunks::PromptChunks(StepStreams& streams, PrefetchControl& prefetch, StepMemory& memory,
                           StepDescriber& describer)
    : streams_(streams),
      engine_(streams.engine()),
      settings_(engine_.settings()),
      sequences_(streams.sequences()),
      prefetch_(prefetch),
      memory_(memory),
      describer_(describer),
      rows_(engine_.device(), streams, "a layer's rows of a prompt") {}

void PromptChunks::require_none(const char* call, SequenceId id) const {
  if (!is_open(id)) return;
  throw UsageError(
      fmt::format("{}: sequence {} has an open chunk; call close_chunk or drop_chunk first", call,
                  index_of(id)));
}

KvSequence& PromptChunks::require_idle(const char* call, SequenceId id) const {
  streams_.require_no_step(call);
  require_none(call, id);
  return sequences_.find_usable(id);
}

const PromptChunks::OpenChunk& PromptChunks::require_open(const char* call, SequenceId id) const {
  if (is_open(id)) return *chunk_;
  throw UsageError(
      fmt::format("{}: sequence {} has no open chunk; call open_chunk first", call, index_of(id)));
}

uint64_t PromptChunks::chunk_bytes(SequenceId id, int64_t tokens) const {
  const SequenceRows& rows = sequences_.find(id).rows();
  const bool local = rows.access() == RowAccess::kLocal && !rows.outgrows_copies(tokens);
  if (local) return 0;
  return static_cast<uint64_t>(pages_of(tokens) * settings_.layout.row_layer_bytes());
}

void PromptChunks::open_chunk(SequenceId id, int tokens) {
  streams_.require_no_step("open_chunk");
  KvSequence& sequence = sequences_.find_usable(id);
  if (settings_.selection_evicts) {
    throw UsageError("open_chunk: not with a selection that evicts tokens");
  }
  if (chunk_) throw UsageError("open_chunk: another chunk is open; close or drop it first");
  if (tokens < 1 || sequence.length() + tokens > INT32_MAX) {
    throw UsageError(fmt::format("open_chunk: {} tokens after {}; allowed: 1 to {}", tokens,
                                 sequence.length(), INT32_MAX - sequence.length()));
  }
  const StepPart part{id, &sequence, tokens, StepMode::kPrefill};
  memory_.load_for({&part, 1});
  streams_.require();
  MemoryGuard guard(streams_, prefetch_);
  memory_.prepare_chunk(part, guard);
  const uint64_t rows = chunk_bytes(id, sequence.length() + tokens);
  make_chunk_room(rows);
  memory_.take_leftovers([&] { rows_.resize(rows); });
  try {
    memory_.lend_copies(part);
    sequence.begin(tokens, StepMode::kPrefill, true, streams_.for_memories(sequence));
    streams_.require({&part, 1});
  } catch (...) {
    rows_.resize(0);
    throw;
  }
  guard.keep();
  chunk_ = OpenChunk{.sequence = id, .tokens = tokens};
}

uint64_t PromptChunks::chunk_room() const {
  const MemoryUse use = engine_.device().memory(MemorySpace::kDevice);
  return use.limit_bytes - std::min(use.limit_bytes, use.used_bytes) +
         sequences_.store().lent_bytes();
}

void PromptChunks::make_chunk_room(uint64_t bytes) {
  const MemoryUse use = engine_.device().memory(MemorySpace::kDevice);
  if (bytes <= use.limit_bytes - std::min(use.limit_bytes, use.used_bytes)) return;
  memory_.reclaim_copies(MemorySpace::kDevice, bytes);
}

// As a step of that layer alone, whose prompt begins at the piece.
LayerPlan PromptChunks::plan_piece(const KvSequence& sequence, int layer) const {
  LayerPlan plan;
  const bool local =
      settings_.layer(layer).in_window_rows || sequence.rows().access() == RowAccess::kLocal;
  plan.prefill = local ? PrefillPath::kInPlace : PrefillPath::kFromLayerRows;
  return plan;
}

// A step of the piece, without its plan.
OpenStep PromptChunks::open_piece(SequenceId id, const PieceCall& call) {
  streams_.require_no_step(call.name);
  const OpenChunk& chunk = require_open(call.name, id);
  KvSequence& sequence = sequences_.find_usable(id);
  const Progress& progress = chunk.*call.progress;
  if (progress.layer >= call.layers) {
    throw UsageError(
        fmt::format("{}: the chunk has gone through all {} layers", call.name, call.layers));
  }
  const int left = chunk.tokens - progress.done;
  if (call.layer != progress.layer || call.tokens < 1 || call.tokens > left) {
    throw UsageError(
        fmt::format("{} of {} tokens in layer {}; allowed: 1 to {} tokens in layer {}, the next",
                    call.name, call.tokens, call.layer, left, progress.layer));
  }
  OpenStep step;
  step.sequences = {{id, &sequence, call.tokens, StepMode::kPrefill}};
  step.slot_index = streams_.free_slot();
  step.slot = &streams_.slots()[step.slot_index];
  step.slot->ensure(1);  // a refused step of others may have lost it
  sequence.require_usable();
  streams_.require();
  step.piece = OpenStep::Piece{.layer = -1, .start = sequence.length() + progress.done};
  return step;
}

void PromptChunks::start_piece(OpenStep step) {
  KvSequence& sequence = *step.sequences.front().sequence;
  streams_.order(std::max(sequences_.take_fence(), sequence.overwritten()));
  streams_.note_control_work(sequence);
  describer_.describe(step);
  if (const int layer = step.piece->layer; layer >= 0) {
    step.tables.plan.layers.resize(static_cast<size_t>(settings_.layer_count()));
    step.tables.plan.layers[static_cast<size_t>(layer)] = plan_piece(sequence, layer);
  } else {
    // No kernel reads the tables, but the events of compute stand for their uploads too.
    engine_.device().wait(step.compute, engine_.tables_ready(), tag_of(-1, Cause::kControl));
  }
  streams_.note_step(step.sequences);
  streams_.step() = std::move(step);
}

void PromptChunks::begin_piece(SequenceId id, int layer, int tokens) {
  OpenStep step = open_piece(
      id, {"begin_piece", &OpenChunk::attention, layer, settings_.layer_count(), tokens});
  step.piece->layer = layer;
  if (step.sequences.front().sequence->rows().access() == RowAccess::kOverLink) {
    step.piece->rows = {.data = rows_.data(),
                        .page_bytes = settings_.layout.row_layer_bytes(),
                        .load = chunk_->attention.done == 0 && settings_.layer(layer).sharer == 0};
  }
  step.appended = std::min(layer, settings_.storing_layers());
  step.attended = layer;
  start_piece(std::move(step));
}

// Only the state takes part in it; tables are described as for any other step.
void PromptChunks::begin_linear_piece(SequenceId id, int layer, int tokens, StreamView stream) {
  OpenStep step = open_piece(
      id, {"begin_linear_piece", &OpenChunk::linear, layer, settings_.linear.layers, tokens});
  const int done = chunk_->linear.done;
  step.linear = step.sequences.front().sequence->linear()->parts(done, done + tokens, 0);
  step.compute = stream;
  step.enqueued = true;
  start_piece(std::move(step));
}

void PromptChunks::end_piece() {
  if (!streams_.step() || !streams_.step()->piece) throw UsageError("end_piece outside a piece");
  OpenStep& step = *streams_.step();
  if (step.failure) throw DeviceError(*step.failure);
  const int layer = step.piece->layer;
  const bool linear = layer < 0;
  if (linear && !step.computed) {
    throw UsageError("end_piece: linear_parts() was not called; compute the layer in its pieces");
  }
  if (!linear && settings_.layer(layer).sharer == 0 && step.appended <= layer) {
    throw UsageError(fmt::format("end_piece before the append of layer {}", layer));
  }
  if (step.enqueued) {
    step.slot->mark_done(step.compute);
    engine_.executor().record_written_back(step.slot->written_back());
    step.slot->mark_streams(engine_.executor().streams());
  }
  Progress& progress = linear ? chunk_->linear : chunk_->attention;
  progress.done += step.sequences.front().tokens;
  if (progress.done == chunk_->tokens) progress = {.layer = progress.layer + 1, .done = 0};
  streams_.step().reset();
}

void PromptChunks::close_chunk(SequenceId id) {
  streams_.require_no_step("close_chunk");
  const OpenChunk chunk = require_open("close_chunk", id);
  KvSequence& sequence = sequences_.find_usable(id);
  const int done = chunk.attention.layer + chunk.linear.layer;
  const int layers = settings_.layer_count() + settings_.linear.layers;
  if (done < layers) {
    throw UsageError(fmt::format(
        "close_chunk with {} of {} layers done; go through all of them or call drop_chunk", done,
        layers));
  }
  sequence.commit(chunk.tokens);
  forget();
}

// The chunk is dropped even if something fails on the way.
void PromptChunks::drop_chunk(SequenceId id) {
  require_open("drop_chunk", id);
  if (streams_.step() && !streams_.step()->piece) streams_.require_no_step("drop_chunk");
  if (streams_.step()) {
    streams_.await_aborted();
    streams_.step().reset();
  }
  KvSequence& sequence = sequences_.find(id);
  streams_.wait_for(sequence);
  sequence.abort(true);
  forget();
}

void PromptChunks::forget() {
  chunk_.reset();
  rows_.resize(0);
}

}  // namespace fasa
