// Exact causal attention: one task per (sequence, kv_head, block of queries), pages in order.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows/row_bodies.h"
#include "kernels/cpu/rows/row_convert.h"
#include "kernels/cpu/rows/row_scratch.h"
#include "kernels/prefill_work.h"
#include "kernels/softmax_state.h"
#include "runtime/base/parallel.h"

namespace fasa::cpu {
namespace {

// Query rows (tokens x heads of the GQA group) per block: enough that expanding a page's keys and
// values is cheap relative to the products, few enough that the block's state and scores stay in
// L2. A multiple of every register tile's rows.
constexpr int kBlockRows = 192;
// With tiles products are cheaper still (measured on 2 MiB of L2: 1.3 times as fast as with 192).
constexpr int kTileBlockRows = 384;

class PrefillCall {
 public:
  PrefillCall(const RowBodies& bodies, const PrefillParams& params)
      : bodies_(bodies),
        params_(params),
        layout_(params.step.layout),
        value_stride_(align_up(layout_.row.value_dim, kPadFloats)),
        q_parts_(parts_of_queries()),
        block_tokens_(std::max(1, block_rows() / layout_.gqa_group)),
        page_body_(q_parts_ > 0 ? bodies.prefill_pairs[layout_.row.dtype]
                                : bodies.prefill_page[layout_.row.dtype]) {}

  KernelWork run() {
    int blocks = 0;  // in the longest sequence
    for (int i = 0; i < params_.step.count; ++i) {
      const SequenceDesc& sequence = params_.step.sequences[i];
      if (sequence.mode != StepMode::kPrefill) continue;
      blocks = std::max(blocks, (sequence.tokens + block_tokens_ - 1) / block_tokens_);
    }
    // Later blocks see more pages, so they go first: no thread is left with a long one at the end.
    const int heads = params_.step.count * layout_.kv_heads;
    parallel_blocks(
        0, heads * blocks, 1,
        [&](int begin, int end) {
          for (int task = begin; task < end; ++task) {
            const int head = task % heads;
            attend_block(head / layout_.kv_heads, head % layout_.kv_heads,
                         blocks - 1 - task / heads);
          }
        },
        Split::kFinest);
    return prefill_work(params_);
  }

 private:
  struct Block {
    const SequenceDesc* sequence;
    int sequence_index;
    int kv_head;
    int first_token;  // index in the step's tensors
    int tokens;
  };

  // Parts of queries as pairs of bf16; 0: they are f32.
  int parts_of_queries() const {
    if (bodies_.prefill_pairs[layout_.row.dtype] == nullptr) return 0;
    if (bodies_.splits_queries) return params_.q.dtype == DType::kBF16 ? 1 : 2;
    return params_.q.dtype == DType::kBF16 && layout_.row.key_dim % 2 == 0 ? 1 : 0;
  }

  int block_rows() const {
    return q_parts_ > 0 && bodies_.splits_queries ? kTileBlockRows : kBlockRows;
  }

  void attend_block(int sequence_index, int kv_head, int index) {
    const SequenceDesc& sequence = params_.step.sequences[sequence_index];
    const int first = index * block_tokens_;
    if (sequence.mode != StepMode::kPrefill || first >= sequence.tokens) return;
    const Block block = {&sequence, sequence_index, kv_head, sequence.first_token + first,
                         std::min(block_tokens_, sequence.tokens - first)};
    PageTask task = open_task(block);
    task.first_query = sequence.start + first;

    const int64_t last_query = task.first_query + block.tokens - 1;
    int64_t page = params_.begin_page;
    if (params_.window > 0) {
      page = std::max(page, (task.first_query + 1 - params_.window) / kPageTokens);
    }
    const int64_t end = std::min<int64_t>(params_.end_page, last_query / kPageTokens + 1);
    const unsigned char* rows[kPageTokens];
    task.rows = rows;
    for (; page < end; ++page) {
      task.position = page * kPageTokens;
      task.slots = static_cast<int>(std::min<int64_t>(kPageTokens, last_query + 1 - task.position));
      for (int slot = 0; slot < task.slots; ++slot) {
        rows[slot] = reinterpret_cast<const unsigned char*>(
            row_at(block, static_cast<int>(task.position) + slot));
      }
      page_body_(task);
    }
    if (params_.last_wave) {
      write_out(block, task);
    } else {
      move_state<false>(block, task);
    }
  }

  // Lays out the thread's scratch for the block, expands queries, opens the state.
  PageTask open_task(const Block& block) const {
    PageTask task;
    task.key_dim = layout_.row.key_dim;
    task.value_dim = layout_.row.value_dim;
    task.key_bytes = layout_.row.key_bytes();
    task.scale = params_.scale;
    task.score_cap = params_.scale * params_.step.score_cap;
    task.group = layout_.gqa_group;
    task.query_rows = block.tokens * layout_.gqa_group;
    task.window = params_.window;
    task.q_parts = std::max(1, q_parts_);
    task.q_stride = align_up(task.key_dim, q_parts_ > 0 ? kPadBf16 : kPadFloats);
    task.value_stride = value_stride_;

    const int64_t rows = align_up(block_tokens_ * layout_.gqa_group, kPadFloats);
    float* next = reinterpret_cast<float*>(
        thread_scratch((task.q_stride + rows * (task.q_stride + value_stride_ + kPageTokens + 3) +
                        kPageTokens * (task.q_stride + value_stride_)) *
                       int64_t{sizeof(float)}));
    const auto take = [&next](int64_t floats) {
      float* taken = next;
      next += floats;
      return taken;
    };
    float* q = take((1 + rows) * task.q_stride) + task.q_stride;  // and one in f32 before them
    task.keys = take(kPageTokens * task.q_stride);
    task.values = take(kPageTokens * value_stride_);
    task.scores = take(rows * kPageTokens);
    task.out = take(rows * value_stride_);
    task.factors = take(rows);
    task.max = take(rows);
    task.sum = take(rows);
    task.q = q;
    if (params_.step.slopes != nullptr) {
      task.slopes = params_.step.slopes + block.kv_head * layout_.gqa_group;
    }
    task.rounds_weights = params_.out.dtype == DType::kBF16;
    load_queries(block, q, task.q_stride);
    if (params_.first_wave) {
      std::fill_n(task.max, task.query_rows, minus_infinity());
      std::fill_n(task.sum, task.query_rows, 0.0f);
      std::fill_n(task.out, task.query_rows * value_stride_, 0.0f);
    } else {
      move_state<true>(block, task);
    }
    return task;
  }

  void load_queries(const Block& block, float* q, int64_t stride) const {
    const ConstTensorView& view = params_.q;
    for (int row = 0; row < block.tokens * layout_.gqa_group; ++row) {
      const int64_t at = view.offset(block.first_token + row / layout_.gqa_group,
                                     block.kv_head * layout_.gqa_group + row % layout_.gqa_group);
      const std::byte* from =
          static_cast<const std::byte*>(view.data) + at * dtype_bytes(view.dtype);
      float* const to = q + row * stride;
      if (q_parts_ > 0) std::fill_n(to, stride, 0.0f);
      if (q_parts_ == 1) {
        std::memcpy(to, from, static_cast<size_t>(layout_.row.key_dim) * sizeof(uint16_t));
        continue;
      }
      float* const floats = q_parts_ == 0 ? to : q - stride;
      bodies_.expand[static_cast<int>(view.dtype)](from, layout_.row.key_dim, floats);
      if (q_parts_ == 2) split(floats, reinterpret_cast<uint16_t*>(to), stride);
    }
  }

  // A query as the sum of two in bf16 that lie `stride` words apart.
  void split(const float* query, uint16_t* to, int64_t stride) const {
    for (int i = 0; i < layout_.row.key_dim; ++i) {
      to[i] = bf16_from_f32(query[i]);
      const float high = f32_from_bf16(to[i]);
      if (std::isfinite(high)) to[stride + i] = bf16_from_f32(query[i] - high);
    }
  }

  // New rows come from the write-back buffer, if there is one; older rows from their page's device
  // copy, the streamed pages of this wave, or the row blocks.
  const std::byte* row_at(const Block& block, int position) const {
    const SequenceDesc& sequence = *block.sequence;
    const int page = position / kPageTokens;
    const int64_t slot_bytes = position % kPageTokens * layout_.row.bytes();
    if (sequence.write_back_buffer != nullptr && position >= sequence.start) {
      return params_.step.write_back_row(sequence, block.kv_head, position);
    }
    const int64_t offset = layout_.row_offset(params_.step.layer, block.kv_head, 0) + slot_bytes;
    const std::byte* device = sequence.device_row_block(page);
    if (device != nullptr) return device + offset;
    const CopiedPages& copied = params_.pages;
    const int64_t at = page - copied.first_page;
    if (copied.data != nullptr && at >= 0 && at < copied.pages) {
      const int64_t head =
          (int64_t{block.sequence_index} * copied.pages + at) * layout_.kv_heads + block.kv_head;
      return copied.data + head * layout_.row_head_bytes() + slot_bytes;
    }
    return sequence.row_blocks[page] + offset;
  }

  // Index of a row's (token, query head) in [tokens, query_heads].
  int64_t query_index(const Block& block, int row) const {
    return (int64_t{block.first_token} + row / layout_.gqa_group) * layout_.query_heads() +
           block.kv_head * layout_.gqa_group + row % layout_.gqa_group;
  }

  template <bool kLoad>
  void move_state(const Block& block, const PageTask& task) const {
    const int value_dim = layout_.row.value_dim;
    for (int row = 0; row < task.query_rows; ++row) {
      float* state = params_.state + query_index(block, row) * (kSoftmaxHeader + value_dim);
      float* out = task.out + row * value_stride_;
      if constexpr (kLoad) {
        task.max[row] = state[0];
        task.sum[row] = state[1];
        std::copy_n(state + kSoftmaxHeader, value_dim, out);
        std::fill(out + value_dim, out + value_stride_, 0.0f);
      } else {
        state[0] = task.max[row];
        state[1] = task.sum[row];
        std::copy_n(out, value_dim, state + kSoftmaxHeader);
      }
    }
  }

  void write_out(const Block& block, const PageTask& task) const {
    for (int row = 0; row < task.query_rows; ++row) {
      const int64_t at =
          params_.out.offset(block.first_token + row / layout_.gqa_group,
                             block.kv_head * layout_.gqa_group + row % layout_.gqa_group);
      const bool empty = task.max[row] == minus_infinity();
      store_quotients(task.out + row * value_stride_, empty ? 1.0f : task.sum[row],
                      layout_.row.value_dim, params_.out.dtype, params_.out.data, at);
      if (params_.lse != nullptr) {
        params_.lse[query_index(block, row)] =
            empty ? minus_infinity() : task.max[row] + std::log(task.sum[row]);
      }
    }
  }

  const RowBodies& bodies_;
  const PrefillParams& params_;
  const CacheLayout& layout_;
  const int64_t value_stride_;
  const int q_parts_;
  const int block_tokens_;
  void (*const page_body_)(const PageTask&);
};

}  // namespace

KernelWork prefill_with(const RowBodies& bodies, const PrefillParams& params) {
  return PrefillCall(bodies, params).run();
}

template <>
KernelWork run(const PrefillParams& params) {
  return prefill_with(row_bodies(active_target()), params);
}

}  // namespace fasa::cpu
