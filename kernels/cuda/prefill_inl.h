// Exact causal attention of a prefill, for any GPU and any dtype. A block takes some query tokens
// and all query heads of a GQA group, or as many as fit, and processes the pages of keys in order
// with an online softmax; all state is in shared memory. A page's keys, then its values, are copied
// there, part by part if they are wide. A query's bits depend only on its own q and the rows, page
// by page, not on the split into blocks or parts.
#pragma once

#include "kernels/cuda/prefill_tile_launch_inl.h"
#include "kernels/cuda/rows_inl.h"
#include "kernels/cuda/softmax_inl.h"

namespace fasa::cuda {

// Layout of a block's shared memory, in floats.
struct PrefillShape {
  int tokens = 0;  // query tokens of a block
  int heads = 0;   // query heads of a block, of one GQA group
  int parts = 0;   // blocks that a GQA group takes
  int rows = 0;    // tokens times heads
  int keys = 0;    // rows of a page that are copied at a time, a power of 2
  int q_width = 0;
  int out_width = 0;
  int staged_words = 0;  // of one copied vector; odd: no bank conflicts along a column
  int scales = 0;        // of copied vectors, if rows are coded

  static constexpr int kMaxRows = 32;
  static constexpr int64_t kBudget = 48 << 10;  // available on every GPU without a request

  static PrefillShape of(const CacheLayout& layout, int max_tokens) {
    PrefillShape shape;
    shape.q_width = (layout.row.key_dim + 1) / 2 * 2;
    shape.out_width = (layout.row.value_dim + 1) / 2 * 2;
    const int widest =
        layout.row.key_dim > layout.row.value_dim ? layout.row.key_dim : layout.row.value_dim;
    shape.staged_words = (widest * layout.row.dtype.bytes() + 3) / 4 | 1;
    shape.scales = layout.row.dtype.is_coded() ? kPageTokens : 0;
    shape.keys = kPageTokens;
    const int fitting = kMaxRows / layout.gqa_group;
    shape.cut(layout.gqa_group, fitting < max_tokens ? fitting : max_tokens, kMaxRows);
    while (shape.bytes() > kBudget && shape.keys > 16) shape.keys /= 2;
    while (shape.bytes() > kBudget && shape.rows > 1) {
      shape.cut(layout.gqa_group, shape.tokens / 2, shape.tokens > 1 ? kMaxRows : shape.heads / 2);
    }
    return shape;
  }
  // Limits tokens and heads of a block, to at least one each.
  constexpr void cut(int group, int max_tokens, int max_heads) {
    tokens = max_tokens < 1 ? 1 : max_tokens;
    parts = (group + max_heads - 1) / max_heads;
    heads = (group + parts - 1) / parts;
    rows = tokens * heads;
  }

  constexpr int64_t floats() const {
    return int64_t{rows} * (q_width + out_width + kPageTokens + 3) + int64_t{keys} * staged_words +
           scales;
  }
  constexpr int64_t bytes() const { return floats() * int64_t{sizeof(float)}; }
};

template <RowDType::Kind kRow>
struct PrefillKernel {
  static constexpr const char* kName = "prefill";
  static constexpr int kThreads = 256;
  static constexpr int kBlocked = 8;  // query rows of a thread at a time
  static constexpr bool kCoded = RowDType(kRow).is_coded();

  PrefillParams params;
  PrefillShape shape;

  // Blocks: parts of the query tokens and of the GQA group, KV heads, sequences. Later queries see
  // more keys, so their blocks start first.
  FASA_DEVICE void operator()() const {
    const SequenceDesc& desc = params.step.sequences[simt::block_z()];
    const int cut = simt::grid_x() - 1 - simt::block_x();
    const int first = cut / shape.parts * shape.tokens;
    if (desc.mode != StepMode::kPrefill || first >= desc.tokens) return;
    Block block(*this, desc, first, cut % shape.parts * shape.heads);
    block.load();
    const int last = block.query(block.tokens - 1);
    int page = params.begin_page;
    if (params.window > 0) {
      const int oldest = (block.query(0) + 1 - params.window) / kPageTokens;
      page = oldest > page ? oldest : page;
    }
    const int end =
        last / kPageTokens + 1 < params.end_page ? last / kPageTokens + 1 : params.end_page;
    simt::sync_block();
    for (; page < end; ++page) block.add_page(page);
    block.write();
  }

 private:
  // One block's queries, and its shared memory.
  struct Block {
    const PrefillKernel& kernel;
    const PrefillParams& params;
    const PrefillShape& shape;
    const CacheLayout& layout;
    const SequenceDesc& desc;
    int first;       // first query token, counted from the sequence's first new one
    int tokens;      // query tokens
    int first_head;  // in the GQA group
    int heads;
    int rows;        // tokens times heads
    float* q;        // [rows][q_width]
    float* out;      // [rows][out_width], not divided by the sums yet
    float* weights;  // [rows][kPageTokens]
    float* tops;     // [rows]
    float* sums;
    float* factors;  // factor of `out` for the current page
    std::byte* staged;
    float* scales;  // of the copied vectors, if rows are coded
    PairFormat keys;
    PairFormat values;

    FASA_DEVICE Block(const PrefillKernel& of, const SequenceDesc& sequence, int first_token,
                      int first_of_group)
        : kernel(of),
          params(of.params),
          shape(of.shape),
          layout(of.params.step.layout),
          desc(sequence),
          first(first_token),
          first_head(first_of_group) {
      const int left = desc.tokens - first;
      tokens = left < shape.tokens ? left : shape.tokens;
      const int more = layout.gqa_group - first_head;
      heads = more < shape.heads ? more : shape.heads;
      rows = tokens * heads;
      q = reinterpret_cast<float*>(simt::shared_memory());
      out = q + int64_t{shape.rows} * shape.q_width;
      weights = out + int64_t{shape.rows} * shape.out_width;
      tops = weights + int64_t{shape.rows} * kPageTokens;
      sums = tops + shape.rows;
      factors = sums + shape.rows;
      scales = factors + shape.rows;
      staged = reinterpret_cast<std::byte*>(scales + shape.scales);
      const bool aligned = layout.row.key_dim % 2 == 0 && layout.row.value_dim % 2 == 0 &&
                           kRow != RowDType::kF32;  // copied vectors begin at whole words
      keys = {layout.row.key_dim, aligned};
      values = {layout.row.value_dim, aligned};
    }

    FASA_DEVICE int query(int token) const { return desc.start + first + token; }  // its position
    FASA_DEVICE int head_of(int row) const {
      return simt::block_y() * layout.gqa_group + first_head + row % heads;
    }
    FASA_DEVICE int token_of(int row) const { return desc.first_token + first + row / heads; }
    FASA_DEVICE float* state_of(int row) const {
      const int64_t at = int64_t{token_of(row)} * layout.query_heads() + head_of(row);
      return params.state + at * (kStateHeader + layout.row.value_dim);
    }

    FASA_DEVICE void load() const {
      for (int i = simt::thread_index(); i < rows * shape.q_width; i += kThreads) {
        const int row = i / shape.q_width;
        const int d = i % shape.q_width;
        const int64_t at = params.q.offset(token_of(row), head_of(row)) + d;
        q[i] = d < keys.dim ? cuda::load(params.q.dtype, params.q.data, at) : 0.0f;
      }
      for (int i = simt::thread_index(); i < rows * shape.out_width; i += kThreads) {
        const int d = i % shape.out_width;
        const bool kept = !params.first_wave && d < values.dim;
        out[i] = kept ? state_of(i / shape.out_width)[kStateHeader + d] : 0.0f;
      }
      for (int row = simt::thread_index(); row < rows; row += kThreads) {
        tops[row] = params.first_wave ? no_maximum() : state_of(row)[0];
        sums[row] = params.first_wave ? 0.0f : state_of(row)[1];
      }
    }

    // The page's keys that the query row may attend to, as slots [begin, end).
    struct Seen {
      int begin;
      int end;
    };
    FASA_DEVICE Seen seen(int row, int page) const {
      const int position = query(row / heads);
      const int newest = position + 1 - page * kPageTokens;
      const int oldest = params.window > 0 ? newest - params.window : 0;
      return {oldest > 0 ? oldest : 0, newest < kPageTokens ? newest : kPageTokens};
    }

    FASA_DEVICE void add_page(int page) const {
      const int last = query(tokens - 1) + 1 - page * kPageTokens;
      const int slots = last < kPageTokens ? last : kPageTokens;
      for (int slot = 0; slot < slots; slot += shape.keys) {
        stage(page, slot, slots, 0, keys.dim);
        simt::sync_block();
        score(page, slot, slots);
        simt::sync_block();
      }
      for (int row = simt::warp(); row < rows; row += simt::block_warps()) weigh(row, page);
      simt::sync_block();
      for (int slot = 0; slot < slots; slot += shape.keys) {
        stage(page, slot, slots, layout.row.key_bytes(), values.dim);
        simt::sync_block();
        add_values(page, slot, slots);
        simt::sync_block();
      }
    }

    // Copies slots [slot, slot + keys) of the page, their keys or their values: one warp per row.
    FASA_DEVICE void stage(int page, int slot, int slots, int64_t offset, int dim) const {
      const int bytes = dim * RowDType(kRow).bytes();
      const int end = slots - slot < shape.keys ? slots - slot : shape.keys;
      for (int i = simt::warp(); i < end; i += simt::block_warps()) {
        const std::byte* from =
            row_at(params.step, simt::block_z(), simt::block_y(), page * kPageTokens + slot + i,
                   params.pages, NewRows::kInWriteBackBuffer) +
            offset;
        std::byte* to = staged + int64_t{i} * shape.staged_words * 4;
        // Whole words; single bytes for the rest.
        const int words = offset % 4 == 0 ? bytes / 4 : 0;
        for (int w = simt::lane(); w < words; w += simt::kWarpThreads) {
          reinterpret_cast<uint32_t*>(to)[w] = reinterpret_cast<const uint32_t*>(from)[w];
        }
        for (int b = 4 * words + simt::lane(); b < bytes; b += simt::kWarpThreads) to[b] = from[b];
        if (kCoded && simt::lane() == 0) scales[i] = scale_of(from, dim);
      }
    }
    FASA_DEVICE float scale_at(int i) const { return kCoded ? scales[i] : 1.0f; }
    FASA_DEVICE const std::byte* staged_at(int i) const {
      return staged + int64_t{i} * shape.staged_words * 4;
    }

    // Each thread scores one key for every (threads / keys)-th query row.
    FASA_DEVICE void score(int page, int slot, int slots) const {
      const int key = simt::thread_index() % shape.keys;
      const int step = kThreads / shape.keys;
      if (slot + key >= slots) return;
      for (int row = simt::thread_index() / shape.keys; row < rows; row += kBlocked * step) {
        float scores[kBlocked] = {};
        for (int pair = 0; pair < keys.pairs(); ++pair) {
          const Pair k = load_pair<kRow>(staged_at(key), pair, keys);
          FASA_UNROLL
          for (int i = 0; i < kBlocked; ++i) {
            const int at = row + i * step < rows ? row + i * step : row;
            const float* of = q + at * shape.q_width + 2 * pair;
            scores[i] = simt::fused(of[0], k.low, scores[i]);
            scores[i] = simt::fused(of[1], k.high, scores[i]);
          }
        }
        for (int i = 0; i < kBlocked && row + i * step < rows; ++i) {
          const int of = row + i * step;
          const int distance = page * kPageTokens + slot + key - query(of / heads);
          const float score = with_slope(scores[i] * scale_at(key), of, distance);
          weights[of * kPageTokens + slot + key] =
              soft_capped(score, params.step.score_cap) * params.scale;
        }
      }
    }
    FASA_DEVICE float with_slope(float score, int row, int distance) const {
      if (params.step.slopes == nullptr) return score;
      return simt::fused(params.step.slopes[head_of(row)], static_cast<float>(distance), score);
    }

    // Turns a row's scores on a page into weights, and updates its maximum and sum; one warp. NaN
    // is preserved.
    FASA_DEVICE void weigh(int row, int page) const {
      constexpr int kSlots = kPageTokens / simt::kWarpThreads;
      const Seen of = seen(row, page);
      float* const line = weights + row * kPageTokens;
      float scores[kSlots];
      float top = no_maximum();
      bool spoilt = false;
      FASA_UNROLL
      for (int i = 0; i < kSlots; ++i) {
        const int slot = i * simt::kWarpThreads + simt::lane();
        scores[i] = slot >= of.begin && slot < of.end ? line[slot] : no_maximum();
        spoilt = spoilt || scores[i] != scores[i];
        top = scores[i] > top ? scores[i] : top;
      }
      top = simt::warp_max(top);
      const float before = tops[row];
      top = before > top ? before : top;
      if (simt::ballot(spoilt || before != before) != 0) top = __builtin_nanf("");
      float sum = 0;
      FASA_UNROLL
      for (int i = 0; i < kSlots; ++i) {
        const float weight = top == no_maximum() ? 0.0f : exponential(scores[i] - top);
        line[i * simt::kWarpThreads + simt::lane()] = weight;
        sum += weight;
      }
      sum = simt::warp_sum(sum);
      simt::sync_warp();  // all lanes have read `before`
      if (simt::lane() != 0) return;
      const float factor = before == no_maximum() ? 0.0f : exponential(before - top);
      factors[row] = factor;
      sums[row] = sums[row] * factor + sum;
      tops[row] = top;
    }

    // Each thread has two dimensions of kBlocked query rows.
    FASA_DEVICE void add_values(int page, int slot, int slots) const {
      const int count = slots - slot < shape.keys ? slots - slot : shape.keys;
      const int pairs = values.pairs();
      const int blocks = (rows + kBlocked - 1) / kBlocked;
      for (int item = simt::thread_index(); item < blocks * pairs; item += kThreads) {
        const int pair = item % pairs;
        const int top_row = item / pairs * kBlocked;
        Pair acc[kBlocked];
        Seen of[kBlocked];
        FASA_UNROLL
        for (int i = 0; i < kBlocked; ++i) {
          const int row = top_row + i < rows ? top_row + i : top_row;
          const float factor = slot == 0 ? factors[row] : 1.0f;
          const float* from = out + row * shape.out_width + 2 * pair;
          acc[i] = {from[0] * factor, from[1] * factor};
          of[i] = seen(row, page);
        }
        for (int k = 0; k < count; ++k) {
          const Pair v = load_pair<kRow>(staged_at(k), pair, values);
          FASA_UNROLL
          for (int i = 0; i < kBlocked; ++i) {
            // Skips values that the query does not see: zero times infinity would be NaN.
            if (slot + k < of[i].begin || slot + k >= of[i].end) continue;
            const int row = top_row + i < rows ? top_row + i : top_row;
            const float weight = weights[row * kPageTokens + slot + k] * scale_at(k);
            acc[i].low = simt::fused(weight, v.low, acc[i].low);
            acc[i].high = simt::fused(weight, v.high, acc[i].high);
          }
        }
        for (int i = 0; i < kBlocked && top_row + i < rows; ++i) {
          float* to = out + (top_row + i) * shape.out_width + 2 * pair;
          to[0] = acc[i].low;
          to[1] = acc[i].high;
        }
      }
    }

    FASA_DEVICE void write() const {
      for (int i = simt::thread_index(); i < rows * values.dim; i += kThreads) {
        const int row = i / values.dim;
        const int d = i % values.dim;
        const float value = out[row * shape.out_width + d];
        const int64_t query = int64_t{token_of(row)} * layout.query_heads() + head_of(row);
        if (!params.last_wave) {
          state_of(row)[kStateHeader + d] = value;
          if (d == 0) state_of(row)[0] = tops[row], state_of(row)[1] = sums[row];
          continue;
        }
        const int64_t at = params.out.offset(token_of(row), head_of(row)) + d;
        store(params.out.dtype, params.out.data, at, value / divisor_of(tops[row], sums[row]));
        if (params.lse != nullptr && d == 0) params.lse[query] = log_sum_exp(tops[row], sums[row]);
      }
    }
  };
};

template <RowDType::Kind kRow, typename Launcher>
void launch_prefill_of(const PrefillParams& params, const Launcher& launch) {
  const auto tokens = static_cast<int>(params.q.tokens);
  const PrefillShape shape = PrefillShape::of(params.step.layout, tokens);
  const int cuts = (tokens + shape.tokens - 1) / shape.tokens;
  launch(PrefillKernel<kRow>{params, shape}, {.x = cuts * shape.parts,
                                              .y = params.step.layout.kv_heads,
                                              .z = params.step.count,
                                              .shared_bytes = shape.bytes()});
}

template <typename Launcher>
void start(const PrefillParams& params, const Launcher& launch) {
  if (launch_prefill_tiles(params, launch)) return;
  switch (params.step.layout.row.dtype) {
    case RowDType::kF32:
      return launch_prefill_of<RowDType::kF32>(params, launch);
    case RowDType::kF16:
      return launch_prefill_of<RowDType::kF16>(params, launch);
    case RowDType::kBF16:
      return launch_prefill_of<RowDType::kBF16>(params, launch);
    case RowDType::kInt8:
      return launch_prefill_of<RowDType::kInt8>(params, launch);
  }
}

}  // namespace fasa::cuda
