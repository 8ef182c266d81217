// The paged API: a KV cache for engines that own page ids. The caller names the page and slot of
// every new token, and the pages of every sequence. There are no sequence ids and no steps; the
// order of layers matters only where data depends on it.
//
//   for each layer: paged.append(layer, k, v, slot_mapping, stream);
//                   paged.attend(layer, q, block_table, seq_lens, out, lse, stream);     // decode
//                   paged.prefill(layer, q, block_table, seq_lens, query_lens, ...);     // prompts
//
// A step with both decodes and prompts, or with sequences that read tokens which others of the step
// write, first appends the layer's tokens of all sequences.
//
// The slot of a token is page x page_size + offset. Slots of a page are written in rising order, in
// every layer. A write to offset 0 restarts the page: its rows, slices and device copies are
// dropped, so page ids can be reused without a call. A page's last slot seals it, layer by layer.
// Tensors must stay alive until `stream` has passed the call; tables and slots are read before it
// returns. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "offload/device.h"
#include "runtime/api/kv_metrics.h"
#include "runtime/api/pages/paged_append.h"
#include "runtime/api/pages/paged_attend.h"
#include "runtime/api/pages/paged_prefill.h"
#include "runtime/api/pages/paged_settings.h"
#include "runtime/api/pages/paged_streams.h"
#include "runtime/api/pages/paged_views.h"
#include "runtime/base/geometry.h"
#include "runtime/base/tensor_view.h"
#include "runtime/config/config.h"

namespace fasa {

// Estimated bytes, before a runtime exists.
struct PagedSizes {
  KvMemory page;   // per page
  KvMemory fixed;  // maximum for everything else, at the given sequences and context
};

struct PageCopy {
  int64_t source = 0;
  int64_t destination = 0;
};

class PagedRuntime {
 public:
  // Arguments as in Runtime. placement.rows = auto means host. A call sees one layer, so nothing is
  // prefetched, and a config that asks for it is refused. Throws UsageError, BudgetError.
  PagedRuntime(Device& device, const Config& config, const Geometry& geometry, RowDType row_dtype,
               const std::vector<int16_t>& slice_dims, const PagedShape& shape);
  ~PagedRuntime();
  PagedRuntime(const PagedRuntime&) = delete;  // streams refer to it
  PagedRuntime& operator=(const PagedRuntime&) = delete;

  // Memory of a runtime of `shape` (num_pages is ignored) for sequences of up to `max_context`
  // tokens and steps of up to `step_tokens` new tokens, all sequences together. Hot rows count at
  // their preferred number. Throws UsageError.
  static PagedSizes sizes(const Device& device, const Config& config, const Geometry& geometry,
                          RowDType row_dtype, const PagedShape& shape, int64_t max_context,
                          int step_tokens);

  const Geometry& geometry() const { return engine_.geometry(); }
  const PagedShape& shape() const { return shape_; }

  // Stores k [tokens, kv_heads, key_dim] (rotated) and v [tokens, kv_heads, value_dim] in slots
  // slot_mapping[tokens]; a token with a negative slot is padding and not stored. The tokens of one
  // page must be adjacent. Throws UsageError for a slot that leaves a gap, is out of range or was
  // written before; BudgetError if the device has no memory for the slices of one more open page.
  // Then nothing has changed.
  void append(int layer, ConstTensorView k, ConstTensorView v,
              std::span<const int64_t> slot_mapping, StreamView stream) {
    append_.run(layer, k, v, slot_mapping, stream);
  }
  // Decodes one query per sequence, of its newest token: q [sequences, query_heads, key_dim]
  // (rotated) over the first seq_lens[i] tokens of pages block_table[i] -> out [sequences,
  // query_heads, value_dim], lse [sequences, query_heads] (natural log) or null. Throws UsageError
  // for pages that hold fewer tokens of the layer, BudgetError. Then nothing has changed.
  void attend(int layer, ConstTensorView q, const BlockTable& block_table,
              std::span<const int32_t> seq_lens, TensorView out, float* lse, StreamView stream) {
    attend_.run(layer, q, block_table, seq_lens, out, lse, stream);
  }

  // Exact causal attention of the newest query_lens[i] of the first seq_lens[i] tokens of each
  // sequence: q [sum of query_lens, query_heads, key_dim] in the order of the table -> out, lse as
  // in attend(). Results equal those of Runtime's prefill bit by bit, however prompts are split.
  // Throws as attend() does; then nothing has changed.
  void prefill(int layer, ConstTensorView q, const BlockTable& block_table,
               std::span<const int32_t> seq_lens, std::span<const int32_t> query_lens,
               TensorView out, float* lse, StreamView stream) {
    prefill_.run(layer, q, block_table, seq_lens, query_lens, out, lse, stream);
  }

  // Reads rows first, first + 1, ... of a page -> k [tokens, kv_heads, key_dim] and v [tokens,
  // kv_heads, value_dim], as stored, converted to the tensors' dtypes. Waits for work under way.
  // Throws UsageError for rows that the page does not hold.
  void read(int64_t page, int layer, int first, TensorView k, TensorView v, StreamView stream);

  // Makes each destination equal to its source, under a new generation. Call it between steps, when
  // every layer holds as many tokens of the source. Waits for work under way.
  void copy_pages(std::span<const PageCopy> copies);
  // Empties the pages.
  void drop_pages(std::span<const int64_t> pages);
  // Tokens of `layer` stored in `page`.
  int held(int64_t page, int layer) const;

  KvMemory memory() const;
  FetchMetrics metrics();  // waits for enqueued work; a step is one attend of layer 0
  void reset_metrics();

 private:
  const PagedShape shape_;
  const StepSettings settings_;
  PageStore store_;
  PagedStreams streams_;
  StepEngine& engine_;
  PagedViews views_;
  PagedAppend append_;
  PagedAttend attend_;
  PagedPrefill prefill_;
  PointerArray read_blocks_;
};

}  // namespace fasa
