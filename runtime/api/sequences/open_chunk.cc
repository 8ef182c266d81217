// Chunks of prompts, layer by layer.
#include "runtime/api/sequences/open_chunk.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/api/sequences/memory_guard.h"
#include "runtime/api/sequences/runtime_impl.h"
#include "runtime/base/error.h"

namespace fasa {

void Runtime::Impl::require_no_chunk(const char* call, SequenceId id) const {
  if (!chunk_ || chunk_->sequence != id) return;
  throw UsageError(
      fmt::format("{}: sequence {} has an open chunk; call close_chunk or drop_chunk first", call,
                  index_of(id)));
}

OpenChunk& Runtime::Impl::require_chunk(const char* call, SequenceId id) {
  if (chunk_ && chunk_->sequence == id) return *chunk_;
  throw UsageError(
      fmt::format("{}: sequence {} has no open chunk; call open_chunk first", call, index_of(id)));
}

uint64_t Runtime::Impl::chunk_bytes(SequenceId id, int64_t tokens) const {
  const SequenceRows& rows = sequences_.find(id).rows();
  const bool local = rows.access() == RowAccess::kLocal && !rows.outgrows_copies(tokens);
  if (local) return 0;
  return static_cast<uint64_t>(pages_of(tokens) * settings_.layout.row_layer_bytes());
}

void Runtime::Impl::open_chunk(SequenceId id, int tokens) {
  require_no_step("open_chunk");
  const KvSequence& sequence = sequences_.find_usable(id);
  if (!traits_.chunks) {
    throw UsageError("open_chunk: not with linear attention or a selection that evicts tokens");
  }
  if (chunk_) throw UsageError("open_chunk: another chunk is open; close or drop it first");
  if (tokens < 1 || sequence.length() + tokens > INT32_MAX) {
    throw UsageError(fmt::format("open_chunk: {} tokens after {}; allowed: 1 to {}", tokens,
                                 sequence.length(), INT32_MAX - sequence.length()));
  }
  const StepSequence part{id, tokens, StepMode::kPrefill};
  pages_.load_for({&part, 1});
  streams_.require();
  MemoryGuard guard(streams_, prefetch_);
  memory_.prepare_chunk(part, guard);
  memory_.take_leftovers([&] { chunk_rows_.resize(chunk_bytes(id, sequence.length() + tokens)); });
  guard.keep();
  chunk_ = OpenChunk{.sequence = id, .tokens = tokens};
}

// As a step of that layer alone, whose prompt begins at the piece.
LayerPlan Runtime::Impl::plan_piece(const KvSequence& sequence, int layer) const {
  LayerPlan plan;
  const bool local =
      settings_.layer(layer).in_window_rows || sequence.rows().access() == RowAccess::kLocal;
  plan.prefill = local ? PrefillPath::kInPlace : PrefillPath::kFromLayerRows;
  return plan;
}

void Runtime::Impl::begin_piece(SequenceId id, int layer, int tokens) {
  require_no_step("begin_piece");
  const OpenChunk& chunk = require_chunk("begin_piece", id);
  KvSequence& sequence = sequences_.find_usable(id);
  if (layer != chunk.layer || tokens < 1 || tokens > chunk.tokens - chunk.done) {
    throw UsageError(fmt::format(
        "begin_piece of {} tokens in layer {}; allowed: 1 to {} tokens in layer {}, the next",
        tokens, layer, chunk.tokens - chunk.done, chunk.layer));
  }
  OpenStep step;
  step.sequences = {{id, tokens, StepMode::kPrefill}};
  step.slot_index = streams_.free_slot();
  step.slot = &streams_.slots()[step.slot_index];
  step.slot->ensure(1);  // a refused step of others may have lost it
  sequences_.find_usable(id);
  streams_.require();
  const bool over_link = sequence.rows().access() == RowAccess::kOverLink;
  step.piece = OpenStep::Piece{.layer = layer, .start = sequence.length() + chunk.done};
  if (over_link) {
    step.piece->rows = {.data = chunk_rows_.data(),
                        .page_bytes = settings_.layout.row_layer_bytes(),
                        .load = chunk.done == 0 && settings_.layer(layer).sharer == 0};
  }
  streams_.order(std::max(sequences_.take_fence(), sequence.overwritten()));
  streams_.note_control_work(id);
  describer_.describe(step);
  step.tables.plan.layers.resize(static_cast<size_t>(settings_.layer_count()));
  step.tables.plan.layers[static_cast<size_t>(layer)] = plan_piece(sequence, layer);
  step.appended = std::min(layer, settings_.storing_layers());
  step.attended = layer;
  streams_.note_step(step.sequences);
  streams_.step() = std::move(step);
}

void Runtime::Impl::end_piece() {
  if (!streams_.step() || !streams_.step()->piece) throw UsageError("end_piece outside a piece");
  OpenStep& step = *streams_.step();
  if (step.failure) throw DeviceError(*step.failure);
  const int layer = step.piece->layer;
  if (settings_.layer(layer).sharer == 0 && step.appended <= layer) {
    throw UsageError(fmt::format("end_piece before the append of layer {}", layer));
  }
  if (step.enqueued) {
    step.slot->mark_done(step.compute);
    engine_.executor().record_written_back(step.slot->written_back());
    step.slot->mark_streams(engine_.executor().streams());
  }
  chunk_->done += step.sequences.front().tokens;
  if (chunk_->done == chunk_->tokens) {
    chunk_->done = 0;
    ++chunk_->layer;
  }
  streams_.step().reset();
}

void Runtime::Impl::close_chunk(SequenceId id) {
  require_no_step("close_chunk");
  const OpenChunk chunk = require_chunk("close_chunk", id);
  KvSequence& sequence = sequences_.find_usable(id);
  if (chunk.layer < settings_.layer_count()) {
    throw UsageError(fmt::format(
        "close_chunk with {} of {} layers done; go through all of them or call drop_chunk",
        chunk.layer, settings_.layer_count()));
  }
  sequence.add_pages(chunk.tokens);
  chunk_.reset();
  chunk_rows_.resize(0);
}

// The chunk is dropped even if something fails on the way.
void Runtime::Impl::drop_chunk(SequenceId id) {
  require_chunk("drop_chunk", id);
  if (streams_.step() && !streams_.step()->piece) require_no_step("drop_chunk");
  if (streams_.step()) {
    await_aborted();
    streams_.step().reset();
  }
  KvSequence& sequence = sequences_.find(id);
  streams_.wait_for(sequence);
  sequence.invalidate();
  chunk_.reset();
  chunk_rows_.resize(0);
}

}  // namespace fasa
