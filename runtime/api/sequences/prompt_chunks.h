// A chunk of a prompt is worked layer by layer: each layer takes all of its tokens, in pieces,
// before the next layer begins. A piece is a step of one layer of one sequence. Rows on the host
// come back to the device once a layer and chunk, and the device has one layer's rows of the
// whole context meanwhile. Results have the bits of steps. One chunk is open at a time; between
// its pieces, steps of other sequences and calls for them are allowed. Calls that change the
// chunk's sequence throw UsageError until it is closed or dropped, except free(), which drops it.
#pragma once

#include <cstdint>
#include <optional>

#include "offload/step_buffer.h"
#include "runtime/api/sequences/step_describer.h"
#include "runtime/api/sequences/step_memory.h"
#include "runtime/api/sequences/step_streams.h"
#include "runtime/base/ids.h"
#include "scheduler/prefetch/prefetch_control.h"

namespace fasa {

class PromptChunks {
 public:
  // All arguments outlive it.
  PromptChunks(StepStreams& streams, PrefetchControl& prefetch, StepMemory& memory,
               StepDescriber& describer);

  // Bytes of device memory that a chunk which ends at `tokens` tokens takes besides the sequence's.
  uint64_t chunk_bytes(SequenceId id, int64_t tokens) const;
  // Device memory for chunks, and for what their caller keeps meanwhile: what is free, and device
  // copies of rows (placement.rows = auto). make_chunk_room() gives copies up so that `bytes` bytes
  // are free, if that suffices.
  uint64_t chunk_room() const;
  void make_chunk_room(uint64_t bytes);
  // Takes memory that is free, and that of copies: nothing else is given up for it. Throws
  // UsageError (not RuntimeTraits::chunks; a chunk or a step is open), BudgetError; then nothing
  // has changed.
  void open_chunk(SequenceId id, int tokens);
  // The next `tokens` tokens of `layer`; layers in order. Then append() of that layer, unless it
  // shares another's rows, attend() if its result is wanted, and end_piece(). Throws BudgetError
  // only if memory for descriptors was lost meanwhile; then nothing has changed.
  void begin_piece(SequenceId id, int layer, int tokens);
  // The same for layers with linear attention, which count for themselves: linear_parts(), whose
  // kernels the caller runs on `stream`, then end_piece(). The order of attention and linear layers
  // is the caller's.
  void begin_linear_piece(SequenceId id, int layer, int tokens, StreamView stream);
  void end_piece();
  // All layers have all tokens: they are the sequence's.
  void close_chunk(SequenceId id);
  // Ends an open piece too. The sequence has the tokens that it had before open_chunk().
  void drop_chunk(SequenceId id);

  // True if the sequence has an open chunk.
  bool is_open(SequenceId id) const { return chunk_ && chunk_->sequence == id; }
  void require_none(const char* call, SequenceId id) const;  // throws UsageError if it has
  // The sequence, which no step and no chunk works for. Throws UsageError.
  KvSequence& require_idle(const char* call, SequenceId id) const;
  uint64_t device_bytes() const { return rows_.bytes(); }

 private:
  struct Progress {  // of pieces through layers of one kind
    int layer = 0;
    int done = 0;  // its tokens
  };
  struct OpenChunk {
    SequenceId sequence = {};
    int tokens = 0;
    Progress attention = {}, linear = {};
  };
  struct PieceCall {
    const char* name;
    Progress OpenChunk::*progress;
    int layer;
    int layers;  // of its kind
    int tokens;
  };
  const OpenChunk& require_open(const char* call, SequenceId id) const;
  LayerPlan plan_piece(const KvSequence& sequence, int layer) const;
  OpenStep open_piece(SequenceId id, const PieceCall& call);
  void start_piece(OpenStep step);
  void forget();

  StepStreams& streams_;
  StepEngine& engine_;
  const StepSettings& settings_;
  SequenceTable& sequences_;
  PrefetchControl& prefetch_;
  StepMemory& memory_;
  StepDescriber& describer_;
  std::optional<OpenChunk> chunk_;
  StepBuffer rows_;  // LayerRows of the open chunk
};

}  // namespace fasa
