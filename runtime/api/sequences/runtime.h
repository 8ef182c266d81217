// The sequences API: a runtime holds the KV cache of many sequences in tiers and serves attention
// from it.
//
// A step goes:
//   runtime.begin_step({{id, 1, StepMode::kDecode}, ...});  // the only call that fails for budgets
//   for each layer: runtime.append(layer, k, v, stream); runtime.attend(layer, q, out, lse,
//   stream); runtime.end_step();                                     // or abort_step()
// A step that only appends loads keys and values whose attention was computed elsewhere.
// Tensors hold the new tokens of all sequences of the step, in the order of begin_step, and must
// stay alive until `stream` has passed the call. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/hot_slots.h"
#include "kernels/params.h"
#include "offload/device.h"
#include "runtime/api/kv_metrics.h"
#include "runtime/base/geometry.h"
#include "runtime/base/ids.h"
#include "runtime/base/tensor_view.h"
#include "runtime/config/config.h"

namespace fasa {

class Predictor;    // scheduler/prefetch/predictor.h
class RowSource;    // scheduler/row_source.h
class QuerySource;  // scheduler/prefetch/query_source.h

struct StepSequence {
  SequenceId sequence;
  int tokens = 1;  // new tokens; of kDecode 1, or up to Runtime::max_decoded()
  StepMode mode = StepMode::kDecode;
};

// Of one page of a sequence, all layers.
struct PageBytes {
  size_t rows = 0;
  size_t window_rows =
      0;  // of them, at their end: what may be given back beside the others, see set_rollback_tokens()
  size_t slices = 0;

  bool operator==(const PageBytes&) const = default;
};

class Runtime {
 public:
  // `device` outlives the runtime. `slice_dims`: [layers][kv_heads][2 x tip_chunks] key dimensions
  // (FcMap::slice_dims, all_slice_dims). Throws UsageError for a config that doesn't fit the
  // geometry, BudgetError where not even the fixed parts fit. A tensor-parallel rank opens its
  // part: geometry.share(heads) and share_of_slice_dims(slice_dims, geometry, heads).
  // `max_context`: tokens of the longest sequence expected, 0 = unknown; there are never more hot
  // rows than that. `max_steps`: before their numbers run out, and hot rows begin anew; tests have
  // few.
  Runtime(Device& device, const Config& config, const Geometry& geometry, RowDType row_dtype,
          const std::vector<int16_t>& slice_dims, int64_t max_context = 0,
          int32_t max_steps = kMaxSteps);
  ~Runtime();
  Runtime(const Runtime&) = delete;  // sequences refer to it
  Runtime& operator=(const Runtime&) = delete;

  const Geometry& geometry() const;
  RowDType row_dtype() const;

  // An empty sequence. Where some layers see a window and others everything, it can be cut back by
  // kConversationRollback tokens, if set_rollback_tokens() does not say otherwise.
  SequenceId create();
  // What reserve() of an empty sequence would take, in bytes: for planning, and for errors that say
  // what is needed.
  // `rollback_tokens`: the rollback window, see set_rollback_tokens(); below 0: that of create().
  KvMemory estimate_memory(int64_t tokens, int step_tokens, int64_t rollback_tokens = -1) const;
  // Room for `tokens` tokens in all, on every tier, and scratch for steps of up to `step_tokens`
  // new tokens. Throws BudgetError and changes nothing when a limit does not suffice.
  void reserve(SequenceId sequence, int64_t tokens, int step_tokens);
  // Says that a sequence will be truncated and forked at most `tokens` tokens from its end, or at
  // 0. Of layers that see a window only, its pages of tokens that nobody sees then are given back
  // as it grows, and reserve() takes no more than that needs: in every tier, where all layers have
  // a window; on the device, where such rows lie, beside layers that see everything. A fork
  // inherits it. Before reserve(). Throws UsageError.
  void set_rollback_tokens(SequenceId sequence, int64_t tokens);
  int64_t rollback_tokens(SequenceId sequence) const;  // below 0: it can be cut anywhere
  // Whether it can be truncated to, or forked at, `tokens` tokens: nothing that is needed then was
  // given back.
  bool can_truncate_to(SequenceId sequence, int64_t tokens) const;
  // A new sequence that shares the first `tokens` tokens; equal to a fresh append of them. Throws
  // UsageError where that lies beyond its rollback window, as truncate(), read() and save_page() do.
  SequenceId fork(SequenceId sequence, int64_t tokens);
  void truncate(SequenceId sequence, int64_t tokens);
  void free(SequenceId sequence);
  int64_t length(SequenceId sequence) const;  // committed tokens

  // Estimates later layers' queries for predictor = next-query; null: none. It must live until
  // another is set. Outside of a step, and before reserve(), which counts what predictions need.
  void set_query_source(QuerySource* source);
  // How many layers ahead the settings would have a query source look; 0: they have no use for one.
  int estimate_depth() const;
  // A predictor of the caller's own in place of the configured one; null: the configured one again.
  // Its predictions may be anything, in a layer's window where sequences have a rollback window: they change
  // times, never results. As above.
  void set_predictor(Predictor* predictor);

  // Tokens that a sequence may decode in one step, each attending as if it had come in a step of
  // its own: 1; on the cpu device, with a selection that evicts nothing, as many as its newest page
  // has room for. Throws UsageError (unknown sequence).
  int max_decoded(SequenceId id) const;
  // Validates, reserves pages on both tiers, updates tables. Throws UsageError (unknown sequence,
  // a step already open, a decode of more tokens than may be, next-query without a query source) or
  // BudgetError; nothing changes then.
  void begin_step(std::span<const StepSequence> sequences);
  // k [tokens, kv_heads, key_dim] (rotated), v [tokens, kv_heads, value_dim]. Enqueues only.
  void append(int layer, ConstTensorView k, ConstTensorView v, StreamView stream);
  // q [tokens, query_heads, key_dim] (rotated) -> out [tokens, query_heads, value_dim]; lse
  // [tokens, query_heads] natural log, or null. After append of the same layer. Enqueues only.
  void attend(int layer, ConstTensorView q, TensorView out, float* lse, StreamView stream);
  // `layers` appends and attends all layers of the open step on `stream`, and enqueues whatever of
  // the caller's belongs between them, on that stream too. A decode step that comes again may be
  // recorded as a graph of the device (cuda, device.graphs) and launched: then `layers` is not
  // called, or is called and recorded, or both, so that it must enqueue the same each time, and
  // only enqueue. `shape`: all that the caller's part and its tensors depend on, addresses as well
  // as sizes; equal words must mean equal work. What lies in device memory, or in host memory that
  // copies read, may change from step to step. Once a step, before its first append. Throws what
  // `layers` throws; abort_step() comes next then.
  void run_layers(StreamView stream, std::span<const uint64_t> shape,
                  const std::function<void()>& layers);
  GraphMetrics graph_metrics() const;
  void end_step();
  void abort_step();

  // Stored keys and values of `layer` at positions first, first + 1, ... -> k [tokens, kv_heads,
  // key_dim] and v [tokens, kv_heads, value_dim], as rows hold them, converted to the tensors'
  // dtypes. Committed tokens only, inside of a step or out of it. Enqueues only. Throws UsageError.
  void read(SequenceId sequence, int layer, int64_t first, TensorView k, TensorView v,
            StreamView stream);

  // --- a sequence as pages of kPageTokens tokens, for whoever keeps it elsewhere. Outside of
  // steps. --- They hold for runtimes of the same geometry, settings, row dtype and slice
  // dimensions.
  PageBytes page_bytes() const;
  // Page `page` of the committed tokens; its slices where it is full, else none. Rows that no token
  // has are zero, and so are window rows that were given back. Waits. Throws UsageError, and
  // what a row source throws.
  void save_page(SequenceId sequence, int64_t page, std::span<std::byte> rows,
                 std::span<std::byte> slices);
  // `tokens` more tokens, behind whole pages, from a page that has at least those: its slices where
  // they fill it, else none. Rows may be left out in pages that a source has; the window rows' in any
  // page, and those of all pages before it are given back, too. Waits. Throws UsageError, and
  // BudgetError; nothing changes then.
  void load_page(SequenceId sequence, int tokens, std::span<const std::byte> rows,
                 std::span<const std::byte> slices);

  // The page from which on nothing was given back, and whether a sequence with all rows from such a
  // page on can be cut to `tokens` tokens.
  int64_t first_page(SequenceId sequence) const;
  bool can_truncate_from(int64_t first_page, int64_t tokens) const;

  // Rows of the first `pages` pages come out of `source` when a decode step selects them; what else
  // reads them (prefill, read, save_page, a fork's last page) fetches what it needs first. The last
  // page of a sequence needs its rows from the start. What `source` throws comes out of the call
  // that needed rows; of a step, from attend(), and nothing has happened once it is aborted.
  bool takes_row_sources() const;
  void set_row_source(SequenceId sequence, std::shared_ptr<RowSource> source, int64_t pages);
  // Some more of the rows that are missing, about `max_bytes`. True: none is missing any more.
  bool fetch_rows(SequenceId sequence, size_t max_bytes);
  bool lacks_rows(SequenceId sequence) const;
  bool lost_rows(SequenceId sequence) const;  // some that are missing can't be had

  KvMemory memory() const;
  FetchMetrics metrics();  // waits for the work enqueued so far
  void reset_metrics();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fasa
