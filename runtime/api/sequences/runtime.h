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
#include <span>
#include <vector>

#include "kernels/hot_slots.h"
#include "kernels/linear_params.h"
#include "kernels/params.h"
#include "offload/device.h"
#include "runtime/api/kv_metrics.h"
#include "runtime/api/sequences/open_step.h"
#include "runtime/api/sequences/page_exchange.h"
#include "runtime/api/sequences/prompt_chunks.h"
#include "runtime/api/sequences/runtime_traits.h"
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
  bool pending = false;  // some contents are not in memory yet (PageExchange::attach_pages)
  bool lost = false;     // and cannot be loaded
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
    return sequences_.find(id).rollback.resume_point(tokens);
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

  // Prompts layer by layer, and pages and states out of the runtime and into it.
  PromptChunks& prompts() { return prompts_; }
  const PromptChunks& prompts() const { return prompts_; }
  PageExchange& exchange() { return exchange_; }
  const PageExchange& exchange() const { return exchange_; }

  // Reads stored keys and values of `layer` at positions first, first + 1, ... -> k [tokens,
  // kv_heads, key_dim] and v [tokens, kv_heads, value_dim], converted from the rows' dtype to the
  // tensors'. Committed tokens only, inside or outside a step. Enqueues only. Throws UsageError.
  void read(SequenceId id, int layer, int64_t first, TensorView k, TensorView v, StreamView stream);

  KvMemory memory() const;
  FetchMetrics metrics();  // waits for enqueued work
  void reset_metrics();

 private:
  int max_decoded(const KvSequence& sequence) const;
  int max_drafted(const KvSequence& sequence) const;
  double read_back_seconds(const KvSequence& sequence) const;
  void begin_memories(OpenStep& step);
  OpenStep& require_step(const char* call, int layer, int OpenStep::*next);
  void check_kept(const OpenStep& step, std::span<const int> kept) const;
  std::vector<StepPart> find_parts(std::span<const StepSequence> sequences);
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
  PromptChunks prompts_;
  PageExchange exchange_;
};

}  // namespace fasa
