// The sequences API: a runtime stores the KV cache of many sequences in tiers and computes
// attention over it.
//
// One step:
//
// runtime.begin_step({{id, 1, StepMode::kDecode}, ...});  // the only call that fails for budgets
// for each layer:
// runtime.append(layer, k, v, stream);
// runtime.attend(layer, q, out, lse, stream);
// runtime.end_step();                                     // or abort_step()
//
// A step that only appends loads keys and values whose attention was computed elsewhere. Tensors
// hold the new tokens of all sequences of the step, in the order of begin_step, and must stay alive
// until `stream` has passed the call. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/hot_slots.h"
#include "kernels/linear_params.h"
#include "kernels/params.h"
#include "offload/device.h"
#include "offload/store/retention.h"
#include "runtime/api/kv_metrics.h"
#include "runtime/api/sequences/open_chunk.h"
#include "runtime/api/sequences/open_step.h"
#include "runtime/api/sequences/step_describer.h"
#include "runtime/api/sequences/step_memory.h"
#include "runtime/api/sequences/step_recorder.h"
#include "runtime/api/sequences/step_streams.h"
#include "runtime/api/sequences/step_timing.h"
#include "runtime/base/geometry.h"
#include "runtime/base/tensor_view.h"
#include "runtime/config/config.h"
#include "scheduler/prefetch/prefetch_control.h"

namespace fasa {

struct SequenceInfo {
  int64_t length = 0;           // committed tokens
  int64_t rollback_tokens = 0;  // below 0: no limit
  int64_t first_page = 0;       // the first one of which nothing was freed, the sinks' pages aside
  // Tokens that it may decode in one step, each attending as if it had a step of its own: as many
  // as fit in its newest page, with rows over the link at most kMaxDecoded; 1 with a selection that
  // evicts.
  int max_decoded = 1;
  // The most tokens of such a step of which end_step() may keep a part: 1, or as many as leave the
  // newest page incomplete. With layers of linear attention up to 16, and 1 behind a prompt that
  // ends within a page.
  int max_drafted = 1;
  // Seconds for which a prefill step occupies the link to read the rows of earlier tokens; 0 where
  // they are on the device.
  double read_back_seconds = 0;
  int64_t held = 0;      // the length of hold_resume_point(), if it is a resume point; 0: none
  bool pending = false;  // some contents are not in memory yet (Runtime::attach_pages)
  bool lost = false;     // and cannot be loaded
};

// Bytes of one page of a sequence, all layers.
struct PageBytes {
  size_t rows = 0;
  size_t window_rows = 0;  // last part of `rows`; pages may lack it, see set_rollback_tokens()
  size_t slices = 0;

  bool operator==(const PageBytes&) const = default;
};

// What follows from a runtime's settings, and never changes.
struct RuntimeTraits {
  RowDType row_dtype = RowDType::kBF16;
  PageBytes page;
  Retention retention = {};      // of the pages that sequences free
  bool loads_on_demand = false;  // see Runtime::attach_pages()
  bool chunks = false;           // see Runtime::open_chunk()

  // True if a sequence that has all rows from page `first_page` on can be truncated to `tokens`
  // tokens.
  bool can_truncate(int64_t first_page, int64_t tokens) const {
    return retention.can_truncate(first_page, tokens);
  }
};

// A page outside of a runtime.
struct PageSpans {
  std::span<std::byte> rows, slices;
};
struct ConstPageSpans {
  std::span<const std::byte> rows, slices;
};

class Runtime : private MemoryReclaimer {
 public:
  // `device` must outlive the runtime. `slice_dims`: [layers][kv_heads][2 x tip_chunks] key
  // dimensions (FcMap::slice_dims, all_slice_dims). `max_context`: tokens of the longest sequence
  // expected, 0 = unknown; there are never more hot rows than that. `max_steps`: steps until step
  // numbers wrap and hot rows start empty; tests use few. A tensor-parallel rank passes its part:
  // geometry.share(heads) and share_of_slice_dims(slice_dims, geometry, heads). Throws UsageError
  // for a config that does not fit the geometry, BudgetError if not even the fixed parts fit.
  Runtime(Device& device, const Config& config, const Geometry& geometry, RowDType row_dtype,
          const std::vector<int16_t>& slice_dims, int64_t max_context = 0,
          int32_t max_steps = kMaxSteps);
  ~Runtime() override;
  Runtime(const Runtime&) = delete;  // the device refers to it
  Runtime& operator=(const Runtime&) = delete;

  const Geometry& geometry() const { return engine_.geometry(); }
  const RuntimeTraits& traits() const { return traits_; }

  // Creates an empty sequence. In models with windowed and full layers, its rollback window is
  // kConversationRollback tokens, unless set_rollback_tokens() changes it.
  SequenceId create() { return sequences_.create(); }
  // Bytes that reserve() of an empty sequence would take. `rollback_tokens`: the rollback window,
  // see set_rollback_tokens(); below 0: that of create().
  KvMemory estimate_memory(int64_t tokens, int step_tokens, int64_t rollback_tokens = -1) const {
    return memory_.estimate(tokens, step_tokens, rollback_tokens);
  }
  // Device memory of the same with as few hot rows as reserve() may give it.
  uint64_t min_device_bytes(int64_t tokens, int step_tokens) const {
    return memory_.min_device_bytes(tokens, step_tokens);
  }
  // Reserves memory for `tokens` tokens in total, on every tier, and scratch for steps of up to
  // `step_tokens` new tokens. Throws BudgetError if a limit is too low; then nothing has changed.
  void reserve(SequenceId id, int64_t tokens, int step_tokens);
  // Sets the rollback window: the sequence will be truncated or forked only within its last
  // `tokens` tokens, or at 0. Sliding-window layers then free pages older than the window plus
  // `tokens` as the sequence grows, and reserve() takes no more than that needs. This applies in
  // every tier if all layers have a window; in mixed models only to the windowed layers' rows on
  // the device. Forks inherit it. Call it before reserve(). Throws UsageError.
  void set_rollback_tokens(SequenceId id, int64_t tokens);
  // The most tokens, at most `tokens`, to which the sequence can be truncated (or at which it can
  // be forked): `tokens`; if pages that it needs were freed, the held length, or 0. With layers of
  // linear attention: its length, a snapshot of their state, or 0.
  int64_t resume_point(SequenceId id, int64_t tokens) const {
    return sequences_.find(id).resume_point(tokens);
  }
  // Says that the sequence will be cut at its present length: layers with linear attention keep a
  // snapshot of their state there, as at the end of a turn.
  void mark_resume_point(SequenceId id);
  // Says that the sequence will be cut at `tokens` tokens, which it may have later: that length
  // stays a resume point, whatever follows it, until another one is held. Layers with windows keep
  // its pages; layers with linear attention take a snapshot where a step begins there. If its pages
  // were freed already, none is held.
  void hold_resume_point(SequenceId id, int64_t tokens);
  // Creates a sequence that shares the first `tokens` tokens; equal to a fresh append of them.
  // Throws UsageError if `tokens` is no resume_point(), as truncate() does; read() and
  // export_pages() throw outside the rollback window.
  SequenceId fork(SequenceId id, int64_t tokens);
  void truncate(SequenceId id, int64_t tokens);
  void free(SequenceId id);
  int64_t length(SequenceId id) const { return sequences_.find(id).length(); }  // committed tokens
  // All calls that name a sequence throw UsageError if there is none.
  SequenceInfo info(SequenceId id) const;

  // Replaces the configured predictor by the caller's; null: back to the configured one.
  // Predictions may name any tokens (with a rollback window, tokens of the layer's window): they
  // change times, never results. Call it outside a step and before reserve().
  void set_predictor(Predictor* predictor);

  // Validates, reserves pages on both tiers, updates tables. Throws UsageError (unknown sequence, a
  // step already open, too many tokens to decode) or
  // BudgetError; then nothing has changed.
  void begin_step(std::span<const StepSequence> sequences);
  // k [tokens, kv_heads, key_dim] (rotated), v [tokens, kv_heads, value_dim]. Enqueues only. Not
  // for layers that share the keys and values of another (Geometry::is_shared).
  void append(int layer, ConstTensorView k, ConstTensorView v, StreamView stream);
  // q [tokens, query_heads, key_dim] (rotated) -> out [tokens, query_heads, value_dim]; lse
  // [tokens, query_heads] natural log, or null. After append of Geometry::kv_layer(layer). Enqueues
  // only.
  void attend(int layer, ConstTensorView q, TensorView out, float* lse, StreamView stream);
  // Runs all layers of the open step. `layers` appends and attends every layer on `stream` and
  // enqueues the caller's own work between them there. On CUDA devices with device.graphs = on, a
  // repeated decode step may be recorded as a graph and launched. Then `layers` may be called only
  // to record, or not at all: it must enqueue the same work each time, and do nothing else.
  // `shape`: all values that the caller's work depends on, tensor addresses and sizes included;
  // equal words must mean equal work. The contents of device memory, and of host memory that copies
  // read, may change between steps. Call it once per step, before the first append. Throws what
  // `layers` throws; call abort_step() then.
  void run_layers(StreamView stream, std::span<const uint64_t> shape,
                  const std::function<void()>& layers);
  GraphMetrics graph_metrics() const { return recorder_.metrics(); }
  // With layers of linear attention: what their kernels need of the open step's sequences, or of
  // the piece. A layer runs the parts of each wave together, wave after wave; in a wave they are in
  // the step's order. The caller runs them before end_step(), once per step. Valid until the step
  // or piece ends.
  std::span<const LinearPart> linear_parts();
  // `kept`: how many of each sequence's tokens stay, 1 or more; empty: all. The others leave no
  // trace. Where some do not stay, the sequence decodes at most SequenceInfo::max_drafted tokens.
  // Throws UsageError, and the step stays open.
  void end_step(std::span<const int> kept = {});
  void abort_step();

  // A chunk of a prompt is worked layer by layer: each layer takes all of its tokens, in pieces,
  // before the next layer begins. A piece is a step of one layer of one sequence. Rows on the host
  // come back to the device once a layer and chunk, and the device has one layer's rows of the
  // whole context meanwhile. Results have the bits of steps. One chunk is open at a time; between
  // its pieces, steps of other sequences and calls for them are allowed. Calls that change the
  // chunk's sequence throw UsageError until it is closed or dropped, except free(), which drops it.
  //
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

  // Reads stored keys and values of `layer` at positions first, first + 1, ... -> k [tokens,
  // kv_heads, key_dim] and v [tokens, kv_heads, value_dim], converted from the rows' dtype to the
  // tensors'. Committed tokens only, inside or outside a step. Enqueues only. Throws UsageError.
  void read(SequenceId id, int layer, int64_t first, TensorView k, TensorView v, StreamView stream);

  // The states that the sequence has in layers with linear attention, by tokens.
  std::vector<StatePoint> states(SequenceId id) const;
  // Sequences as pages of kPageTokens tokens, for callers that store them elsewhere. Outside steps
  // only. Pages fit runtimes with the same geometry, settings, row dtype and slice dimensions.
  //
  // Copies pages first, first + 1, ... of the committed tokens, with the slices of full ones. Rows
  // beyond the last token and window rows that were given back are zero. Waits once. Throws
  // UsageError, BudgetError (a short sequence makes its slices first), and errors of PendingPages.
  void export_pages(SequenceId id, int64_t first, std::span<const PageSpans> pages);
  // Appends `tokens` tokens after whole pages, from pages with at least as many; with the slices of
  // those that they fill. Rows may be omitted from pages that attach_pages() named. Window rows
  // may be omitted from any page; those of all earlier pages are then given back. Waits once.
  // Throws UsageError, BudgetError; then nothing has changed.
  void import_pages(SequenceId id, int64_t tokens, std::span<const ConstPageSpans> pages);

  // With layers of linear attention pages are not all: a sequence also has a state. export_state()
  // copies bytes of one of states() from `offset` on, which wait like pages.
  // import_state() takes them, in order, after import_pages() of exactly the point's tokens; steps
  // need it. Throw UsageError, and import_state() BudgetError: nothing has changed.
  void export_state(SequenceId id, const StatePoint& point, size_t offset,
                    std::span<std::byte> bytes);
  void import_state(SequenceId id, const StatePoint& point, size_t offset,
                    std::span<const std::byte> bytes);

  // Rows of the first `pages` pages come from `pending` when a decode step selects them. Other
  // readers (prefill, read, export_pages, a fork's last page) load the rows they need first. The
  // last page of a sequence needs its rows from the start. The call that needs rows throws the
  // errors of `pending`; in a step that is attend(), and aborting the step undoes it. Throws
  // UsageError unless the runtime loads on demand (the cpu device, most settings).
  void attach_pages(SequenceId id, std::shared_ptr<PendingPages> pending, int64_t pages);
  // Loads about `max_bytes` of the missing rows. Returns true once no rows are missing.
  bool load_more(SequenceId id, size_t max_bytes);

  KvMemory memory() const;
  FetchMetrics metrics();  // waits for enqueued work
  void reset_metrics();

 private:
  void settle();  // waits for all work
  int max_decoded(const KvSequence& sequence) const;
  int max_drafted(const KvSequence& sequence) const;
  double read_back_seconds(const KvSequence& sequence) const;
  void require_no_step(const char* call);
  void require_no_chunk(const char* call, SequenceId id) const;
  // The sequence, which no step and no chunk works for.
  KvSequence& require_idle(const char* call, SequenceId id);
  OpenChunk& require_chunk(const char* call, SequenceId id);
  LayerPlan plan_piece(const KvSequence& sequence, int layer) const;
  struct PieceCall {
    const char* name;
    OpenChunk::Progress OpenChunk::*progress;
    int layer;
    int layers;  // of its kind
    int tokens;
  };
  OpenStep open_piece(SequenceId id, const PieceCall& call);
  void start_piece(OpenStep step);
  void code_slices(KvSequence& sequence);
  void copy_out(const KvSequence& sequence, int64_t first, std::span<const PageSpans> pages);
  void copy_in(const KvSequence& sequence, int64_t first, std::span<const ConstPageSpans> pages);
  // Waits for all of them together.
  void copy(std::span<const CopyRange> ranges, CopyKind kind);
  // Loads the rows that these sequences read before their sets are known.
  void load_for(std::span<const StepSequence> sequences);
  // The control stream; behind earlier steps if they may write what `sequence` remembers.
  const Stream& stream_for_memories(const KvSequence& sequence);
  void begin_memories(OpenStep& step);
  OpenStep& require_step(const char* call, int layer, int OpenStep::*next);
  void check_kept(const OpenStep& step, std::span<const int> kept) const;
  void check_step(std::span<const StepSequence> sequences);
  void await_aborted();  // waits until the open step's work has finished or failed
  bool reclaim(MemorySpace space, size_t bytes) override;

  const StepSettings settings_;
  const RuntimeTraits traits_;
  StepStreams streams_;  // first: what follows waits for its work when it gives memory back
  StepEngine& engine_;
  SequenceTable sequences_;
  PrefetchControl prefetch_;
  StepMemory memory_;
  StepRecorder recorder_;
  StepTiming timing_;
  StepDescriber describer_;
  std::optional<OpenChunk> chunk_;
  StepBuffer chunk_rows_;  // LayerRows of the open chunk
};

}  // namespace fasa
