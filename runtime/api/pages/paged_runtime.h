// The paged API: a KV cache for engines that own page ids. The caller says for every token in
// which slot of which page it goes, and for every sequence which pages it has; there are no
// sequences, no steps and no order of layers but the one that data imposes.
//
//   for each layer: paged.append(layer, k, v, slot_mapping, stream);
//                   paged.attend(layer, q, block_table, seq_lens, out, lse, stream);     // decode
//                   paged.prefill(layer, q, block_table, seq_lens, query_lens, ...);     // prompts
//
// A step that has both, and sequences that read what others of the same step write, appends the
// layer's tokens of all of them first.
//
// The slot of a token is page x page_size + offset. Slots of a page are written in rising order, in
// every layer. A write to offset 0 starts the page anew: what it held, its slices and what was kept
// of its rows on the device are gone, so ids may be used again without a word. A page's last slot
// seals it, layer by layer. Tensors must stay alive until `stream` has passed the call; tables and
// slots are read before it returns. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/hot_slots.h"
#include "offload/device.h"
#include "runtime/api/kv_metrics.h"
#include "runtime/base/geometry.h"
#include "runtime/base/tensor_view.h"
#include "runtime/config/config.h"

namespace fasa {

struct PagedShape {
  int page_size = 64;     // tokens: 16, 32, 64, 128, 192 or 256
  int64_t num_pages = 0;  // their rows are taken at once, and their slices (from 64 tokens on)
  // Sequences whose hot rows are kept: the most that are expected in flight. More take their turns.
  int max_sequences = 64;
  int32_t max_steps = kMaxSteps;  // as a Runtime's
};

// Page ids in the order of the sequence, [sequences][columns], rows `stride` apart. Entries beyond
// a sequence's length mean nothing. In host memory.
struct BlockTable {
  const int32_t* pages = nullptr;
  int64_t sequences = 0;
  int64_t columns = 0;
  int64_t stride = 0;
};

// Bytes before there are any pages.
struct PagedSizes {
  KvMemory page;   // that each page takes
  KvMemory fixed;  // that all else takes at most, with so many sequences of such a length
};

struct PageCopy {
  int64_t source = 0;
  int64_t destination = 0;
};

class PagedRuntime {
 public:
  // As a Runtime's. placement.rows = auto counts as host, and nothing is prefetched: a call sees
  // one layer, and a config that asks for it is refused. Throws UsageError, BudgetError.
  PagedRuntime(Device& device, const Config& config, const Geometry& geometry, RowDType row_dtype,
               const std::vector<int16_t>& slice_dims, const PagedShape& shape);
  ~PagedRuntime();
  PagedRuntime(const PagedRuntime&) = delete;  // streams refer to it
  PagedRuntime& operator=(const PagedRuntime&) = delete;

  // What a runtime of `shape` takes, whose num_pages means nothing here, for sequences of up to
  // `max_context` tokens in steps of up to `step_tokens` new ones, all sequences together. What the
  // hot rows take is what they would like. Throws UsageError.
  static PagedSizes sizes(const Device& device, const Config& config, const Geometry& geometry,
                          RowDType row_dtype, const PagedShape& shape, int64_t max_context,
                          int step_tokens);

  const Geometry& geometry() const;
  const PagedShape& shape() const;

  // k [tokens, kv_heads, key_dim] (rotated), v [tokens, kv_heads, value_dim] to slots
  // slot_mapping[tokens]; a negative slot stores nothing (padding). The tokens of one page stand
  // side by side. Throws UsageError for a slot past a gap, out of range or written before,
  // BudgetError where the device has no room for the slices of one more open page; nothing changes
  // then.
  void append(int layer, ConstTensorView k, ConstTensorView v,
              std::span<const int64_t> slot_mapping, StreamView stream);
  // One query a sequence, of its newest token: q [sequences, query_heads, key_dim] (rotated) over
  // the first seq_lens[i] tokens of pages block_table[i] -> out [sequences, query_heads,
  // value_dim], lse [sequences, query_heads] natural log, or null. Throws UsageError for pages that
  // hold fewer tokens of the layer, BudgetError; nothing changes then.
  void attend(int layer, ConstTensorView q, const BlockTable& block_table,
              std::span<const int32_t> seq_lens, TensorView out, float* lse, StreamView stream);

  // Exact causal attention of the newest query_lens[i] of the first seq_lens[i] tokens of each
  // sequence: q [sum of query_lens, query_heads, key_dim] in the order of the table -> out, lse, as
  // attend's. The bits are those of a Runtime's prefill, however prompts are cut. Throws as attend
  // does; nothing changes then.
  void prefill(int layer, ConstTensorView q, const BlockTable& block_table,
               std::span<const int32_t> seq_lens, std::span<const int32_t> query_lens,
               TensorView out, float* lse, StreamView stream);

  // Rows first, first + 1, ... of a page -> k [tokens, kv_heads, key_dim] and v [tokens, kv_heads,
  // value_dim], as they are stored, converted to the tensors' dtypes. Waits for work under way.
  // Throws UsageError for rows that the page does not hold.
  void read(int64_t page, int layer, int first, TensorView k, TensorView v, StreamView stream);

  // The destination becomes the source's equal, under a new generation. Between two steps: every
  // layer holds as many tokens of the source. Waits for work under way.
  void copy_pages(std::span<const PageCopy> copies);
  // They hold nothing any more.
  void drop_pages(std::span<const int64_t> pages);
  // Tokens of a layer in a page.
  int held(int64_t page, int layer) const;

  KvMemory memory() const;
  FetchMetrics metrics();  // waits for the work enqueued so far; a step is one attend of layer 0
  void reset_metrics();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fasa
