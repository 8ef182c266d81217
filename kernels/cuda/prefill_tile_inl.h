// Exact causal attention of a prefill on tensor cores, for rows of bf16, f16 or codes, with keys
// and values of kDim. A block takes kRows rows (query tokens times the query heads of a GQA group),
// a warp sixteen of them, whose queries, page scores and outputs stay in its registers. Keys and
// values of a page are in shared memory (prefill_stage_inl.h): the next page's keys are copied
// while this page's values are added, its values while its keys are scored. For wide heads queries
// are read again in each page, because neither registers nor 48 KiB hold them.
//
// A weight is the sum of two numbers of the rows' type (the rounded weight and its remainder),
// exact to 2^-16 or better; queries of another type than the rows are split likewise. Pages are
// folded in order by an online softmax as in prefill_inl.h: a query's bits depend only on its own q
// and the rows.
#pragma once

#include "kernels/cuda/mma_inl.h"
#include "kernels/cuda/prefill_stage_inl.h"
#include "kernels/cuda/softmax_inl.h"

namespace fasa::cuda {

template <DType kElement>
FASA_DEVICE void mma_rows(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kElement == DType::kBF16) {
    mma_bf16(d, a, b);
  } else {
    mma_f16(d, a, b);
  }
}

template <DType kElement>
FASA_DEVICE float rounded(float value) {
  const auto bits = static_cast<uint16_t>(element_bits(kElement, value));
  return kElement == DType::kBF16 ? simt::float_of(uint32_t{bits} << 16) : float_of_f16(bits);
}
// Rounding remainders of two numbers; zero for a number without a finite remainder.
template <DType kElement>
FASA_DEVICE uint32_t packed_rest(float low, float high) {
  const float a = low - rounded<kElement>(low);
  const float b = high - rounded<kElement>(high);
  return packed<kElement>(a == a ? a : 0.0f, b == b ? b : 0.0f);
}

constexpr bool has_prefill_tiles(int dim) {
  return dim == 64 || dim == 80 || dim == 96 || dim == 128 || dim == 256;
}

// `kSplit`: queries have another type than the rows.
template <RowDType::Kind kRow, int kDim, bool kSplit>
struct PrefillTileKernel {
  static constexpr const char* kName = "prefill";
  static constexpr int kThreads = 128;
  static constexpr int kResidentBlocks = 2;
  static constexpr int kRows = 64;
  static constexpr int kGroups = kPageTokens / 8;  // of keys, one product wide
  using Dim = PrefillTileDim<kDim>;
  using Stage = PrefillStage<kRow, kDim, kThreads>;
  static constexpr bool kCoded = Stage::kCoded;
  static constexpr DType kElement = Stage::kElement;
  static constexpr int kDepths = Dim::kDepths;
  static constexpr int kStride = Dim::kStride;
  static constexpr int kHeldDepths = Dim::kKeepsQueries ? kDepths : 1;  // of queries
  static constexpr int64_t kSharedBytes = Stage::kSharedBytes;

  PrefillParams params;
  int tokens = 0;  // query tokens of a block

  // A thread's part of its two rows: lane / 4 of its warp's sixteen, and the one eight below.
  struct State {
    uint32_t q[kHeldDepths][4];
    uint32_t q_rest[kSplit ? kHeldDepths : 1][4];
    float out[2 * kDepths][4];  // see dim_of
    float top[2];
    float sum[2];
  };

  // Blocks: parts of the query tokens, KV heads, sequences. Later queries see more keys: they start
  // first.
  FASA_DEVICE void operator()() const {
    const SequenceDesc& desc = params.step.sequences[simt::block_z()];
    const int first = (simt::grid_x() - 1 - simt::block_x()) * tokens;
    if (desc.mode != StepMode::kPrefill || first >= desc.tokens) return;
    const int count = desc.tokens - first < tokens ? desc.tokens - first : tokens;
    State state;
    load(desc, first, count, state);
    const int last = desc.start + first + count - 1;
    int page = params.begin_page;
    if (params.window > 0) {
      const int oldest = (desc.start + first + 1 - params.window) / kPageTokens;
      page = oldest > page ? oldest : page;
    }
    const int end =
        last / kPageTokens + 1 < params.end_page ? last / kPageTokens + 1 : params.end_page;
    if (page < end) {
      Stage::bring_keys(rows_of(last, page));
      if constexpr (Dim::kKeepsKeys) Stage::bring_values(rows_of(last, page));
    }
    for (; page < end; ++page) add_page(desc, first, count, page, page + 1 < end, state);
    write(desc, first, count, state);
  }

 private:
  // The page's rows visible to the block's newest query, at position `last`. Looked up for each
  // copy, because there are no registers left to keep them from page to page.
  FASA_DEVICE static int slots_of(int last, int page) {
    const int seen = last + 1 - page * kPageTokens;
    return seen < kPageTokens ? seen : kPageTokens;
  }
  FASA_DEVICE PageRows rows_of(int last, int page) const {
    return PageRows::of(params, simt::block_z(), simt::block_y(), page, slots_of(last, page));
  }

  // Index among the block's rows; `half`: the upper or the lower eight of the warp's sixteen.
  FASA_DEVICE static int row_of(int half) {
    return simt::warp() * 16 + simt::lane() / 4 + 8 * half;
  }
  // Dimension of element `i` of a thread's out[2 * depth + odd], which belongs to row i / 2: a load
  // of values gets two adjacent dimensions; the first goes to the even product, the second to the
  // odd one.
  FASA_DEVICE static int dim_of(int depth, int odd, int i) {
    return depth * 16 + simt::lane() % 4 * 4 + 2 * (i % 2) + odd;
  }
  FASA_DEVICE int head_of(int row) const {
    const int group = params.step.layout.gqa_group;
    return simt::block_y() * group + row % group;
  }
  FASA_DEVICE int64_t query_at(const SequenceDesc& desc, int first, int row) const {
    const int64_t token = desc.first_token + first + row / params.step.layout.gqa_group;
    return token * params.step.layout.query_heads() + head_of(row);
  }
  FASA_DEVICE float* state_of(const SequenceDesc& desc, int first, int row) const {
    return params.state + query_at(desc, first, row) * (kStateHeader + kDim);
  }
  FASA_DEVICE bool has_row(int count, int row) const {
    return row < count * params.step.layout.gqa_group;
  }

  FASA_DEVICE void load(const SequenceDesc& desc, int first, int count, State& state) const {
    FASA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(half);
      const bool there = has_row(count, row);
      const bool kept = there && !params.first_wave;
      const float* from = kept ? state_of(desc, first, row) : nullptr;
      state.top[half] = kept ? from[0] : no_maximum();
      state.sum[half] = kept ? from[1] : 0.0f;
      FASA_UNROLL
      for (int depth = 0; depth < kDepths; ++depth) {
        if constexpr (Dim::kKeepsQueries) load_queries(desc, first, count, half, depth, state);
        FASA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int d = dim_of(depth, i / 2, i % 2);
          state.out[2 * depth + i / 2][2 * half + i % 2] = kept ? from[kStateHeader + d] : 0.0f;
        }
      }
    }
  }

  // Loads sixteen columns of a row's query, into the registers of `depth`, or into the only ones
  // for wide heads.
  FASA_DEVICE void load_queries(const SequenceDesc& desc, int first, int count, int half, int depth,
                                State& state) const {
    const int row = row_of(half);
    const bool there = has_row(count, row);
    const int64_t token = desc.first_token + first + row / params.step.layout.gqa_group;
    const int64_t at = there ? params.q.offset(token, head_of(row)) : 0;
    const int to = Dim::kKeepsQueries ? depth : 0;
    const DType dtype = kSplit ? params.q.dtype : kElement;
    FASA_UNROLL
    for (int part = 0; part < 2; ++part) {  // columns c and c + 8
      const int d = depth * 16 + simt::lane() % 4 * 2 + part * 8;
      const float a = there ? cuda::load(dtype, params.q.data, at + d) : 0.0f;
      const float b = there ? cuda::load(dtype, params.q.data, at + d + 1) : 0.0f;
      state.q[to][part * 2 + half] = packed<kElement>(a, b);
      if constexpr (kSplit) state.q_rest[to][part * 2 + half] = packed_rest<kElement>(a, b);
    }
  }

  // `goes_on`: another page follows. This page's keys are being copied, and so are its values if
  // they have memory of their own.
  FASA_DEVICE void add_page(const SequenceDesc& desc, int first, int count, int page, bool goes_on,
                            State& state) const {
    const int last = desc.start + first + count - 1;
    simt::wait_copies<Dim::kKeepsKeys ? 1 : 0>();
    simt::sync_block();
    if (simt::thread_index() == 0) Stage::spoilt() = 0;
    float weights[kGroups][4] = {};
    score(desc, first, count, state, weights);
    if constexpr (kCoded) scale_scores(weights);
    simt::sync_block();  // the keys have been read
    if constexpr (!Dim::kKeepsKeys) {
      Stage::bring_values(rows_of(last, page));
    } else if (goes_on) {
      Stage::bring_keys(rows_of(last, page + 1));
    } else {
      simt::commit_copies();
    }
    weigh_page(desc, first, count, page, weights, state);
    simt::wait_copies<Dim::kKeepsKeys ? 1 : 0>();
    Stage::clean_values(slots_of(last, page));
    simt::sync_block();
    add_values(weights, state);
    const bool spoilt = Stage::spoilt() != 0;
    simt::sync_block();  // the values and the flag have been read
    if (spoilt) {
      simt::wait_copies<0>();
      add_spoilt(desc, first, count, page, weights, state);
    }
    if (!goes_on) return;
    if (spoilt || !Dim::kKeepsKeys) Stage::bring_keys(rows_of(last, page + 1));
    if constexpr (Dim::kKeepsKeys) Stage::bring_values(rows_of(last, page + 1));
  }

  // Turns scores of the page into weights.
  FASA_DEVICE void weigh_page(const SequenceDesc& desc, int first, int count, int page,
                              float (&weights)[kGroups][4], State& state) const {
    FASA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int token = row_of(half) / params.step.layout.gqa_group;
      const int newest = desc.start + first + token + 1 - page * kPageTokens;
      const int oldest = params.window > 0 ? newest - params.window : 0;
      const int begin = has_row(count, row_of(half)) ? oldest : kPageTokens;
      if (params.step.slopes != nullptr) {
        add_slope(half, params.step.slopes[head_of(row_of(half))], newest - 1, weights);
      }
      if (params.step.score_cap > 0) cap_scores(half, params.step.score_cap, weights);
      weigh(half, begin, newest, state, weights);
    }
  }

  FASA_DEVICE void score(const SequenceDesc& desc, int first, int count, State& state,
                         float (&scores)[kGroups][4]) const {
    FASA_UNROLL
    for (int depth = 0; depth < kDepths; ++depth) {
      const int of = Dim::kKeepsQueries ? depth : 0;
      if constexpr (!Dim::kKeepsQueries) {
        load_queries(desc, first, count, 0, depth, state);
        load_queries(desc, first, count, 1, depth, state);
      }
      FASA_UNROLL
      for (int n = 0; n < kGroups; ++n) {
        const uint32_t* at =
            Stage::keys() + (n * 8 + simt::lane() / 4) * kStride + depth * 8 + simt::lane() % 4;
        const uint32_t b[2] = {at[0], at[4]};
        mma_rows<kElement>(scores[n], state.q[of], b);
        if constexpr (kSplit) mma_rows<kElement>(scores[n], state.q_rest[of], b);
      }
    }
  }

  FASA_DEVICE static void scale_scores(float (&scores)[kGroups][4]) {
    FASA_UNROLL
    for (int n = 0; n < kGroups; ++n) {
      const float* scales = Stage::key_scales() + n * 8 + simt::lane() % 4 * 2;
      FASA_UNROLL
      for (int i = 0; i < 4; ++i) scores[n][i] *= scales[i % 2];
    }
  }

  // Adds ALiBi's term to one row's scores. `query`: the query's slot, which may be in a later page.
  FASA_DEVICE static void add_slope(int half, float slope, int query, float (&scores)[kGroups][4]) {
    FASA_UNROLL
    for (int n = 0; n < kGroups; ++n) {
      FASA_UNROLL
      for (int i = 0; i < 2; ++i) {
        const auto distance = static_cast<float>(n * 8 + simt::lane() % 4 * 2 + i - query);
        float& score = scores[n][2 * half + i];
        score = simt::fused(slope, distance, score);
      }
    }
  }

  FASA_DEVICE static void cap_scores(int half, float cap, float (&scores)[kGroups][4]) {
    FASA_UNROLL
    for (int n = 0; n < kGroups; ++n) {
      FASA_UNROLL
      for (int i = 0; i < 2; ++i) {
        float& score = scores[n][2 * half + i];
        score = soft_capped(score, cap);
      }
    }
  }

  // Turns one row's scores into weights, by the four lanes that share it. The row sees slots
  // [begin, end).
  FASA_DEVICE void weigh(int half, int begin, int end, State& state,
                         float (&weights)[kGroups][4]) const {
    float top = no_maximum();
    uint32_t spoilt = 0;
    FASA_UNROLL
    for (int n = 0; n < kGroups; ++n) {
      FASA_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int slot = n * 8 + simt::lane() % 4 * 2 + i;
        float& score = weights[n][2 * half + i];
        score = slot >= begin && slot < end ? score * params.scale : no_maximum();
        spoilt |= score != score ? 1u : 0u;
        top = score > top ? score : top;
      }
    }
    FASA_UNROLL
    for (int lanes = 1; lanes <= 2; lanes *= 2) {
      const float other = simt::shuffle_xor(top, lanes);
      top = other > top ? other : top;
      spoilt |= simt::shuffle_xor(spoilt, lanes);
    }
    const float before = state.top[half];
    top = before > top ? before : top;
    if (spoilt != 0 || before != before) top = __builtin_nanf("");
    float sum = 0;
    FASA_UNROLL
    for (int n = 0; n < kGroups; ++n) {
      FASA_UNROLL
      for (int i = 0; i < 2; ++i) {
        float& weight = weights[n][2 * half + i];
        weight = top == no_maximum() ? 0.0f : exponential(weight - top);
        sum += weight;
      }
    }
    FASA_UNROLL
    for (int lanes = 1; lanes <= 2; lanes *= 2) sum += simt::shuffle_xor(sum, lanes);
    const float factor = before == no_maximum() ? 0.0f : exponential(before - top);
    state.sum[half] = state.sum[half] * factor + sum;
    state.top[half] = top;
    FASA_UNROLL
    for (int n = 0; n < 2 * kDepths; ++n) {
      state.out[n][2 * half] *= factor;
      state.out[n][2 * half + 1] *= factor;
    }
  }

  FASA_DEVICE static void add_values(const float (&weights)[kGroups][4], State& state) {
    FASA_UNROLL
    for (int k = 0; k < kGroups / 2; ++k) {  // sixteen keys
      uint32_t a[4], rest[4];
      FASA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float* pair = &weights[2 * k + i / 2][2 * (i % 2)];
        float scaled[2] = {pair[0], pair[1]};
        if constexpr (kCoded) {
          const float* scales = Stage::value_scales() + (2 * k + i / 2) * 8 + simt::lane() % 4 * 2;
          scaled[0] *= scales[0];
          scaled[1] *= scales[1];
        }
        a[i] = packed<kElement>(scaled[0], scaled[1]);
        rest[i] = packed_rest<kElement>(scaled[0], scaled[1]);
      }
      const uint32_t* at =
          Stage::values() + (k * 16 + simt::lane() % 4 * 2) * kStride + simt::lane() / 4;
      FASA_UNROLL
      for (int depth = 0; depth < kDepths; ++depth) {
        const uint32_t words[4] = {at[depth * 8], at[depth * 8 + kStride],
                                   at[depth * 8 + 8 * kStride], at[depth * 8 + 9 * kStride]};
        const uint32_t even[2] = {low_halves(words[0], words[1]), low_halves(words[2], words[3])};
        const uint32_t odd[2] = {high_halves(words[0], words[1]), high_halves(words[2], words[3])};
        mma_rows<kElement>(state.out[2 * depth], a, even);
        mma_rows<kElement>(state.out[2 * depth], rest, even);
        mma_rows<kElement>(state.out[2 * depth + 1], a, odd);
        mma_rows<kElement>(state.out[2 * depth + 1], rest, odd);
      }
    }
  }
  FASA_DEVICE static uint32_t low_halves(uint32_t first, uint32_t second) {
    return (first & 0xffffu) | second << 16;
  }
  FASA_DEVICE static uint32_t high_halves(uint32_t first, uint32_t second) {
    return first >> 16 | (second & 0xffff0000u);
  }

  // Adds the values that clean_values() has zeroed, one by one: rare and slow.
  FASA_DEVICE void add_spoilt(const SequenceDesc& desc, int first, int count, int page,
                              const float (&weights)[kGroups][4], State& state) const {
    auto* const shared = reinterpret_cast<float*>(simt::shared_memory());  // [rows][slots]
    simt::sync_block();                                                    // no copies are running
    FASA_UNROLL
    for (int n = 0; n < kGroups; ++n) {
      FASA_UNROLL
      for (int i = 0; i < 4; ++i) {
        shared[row_of(i / 2) * kPageTokens + n * 8 + simt::lane() % 4 * 2 + i % 2] = weights[n][i];
      }
    }
    simt::sync_block();
    for (int slot = 0; slot < kPageTokens; ++slot) {
      // Unrolled; otherwise the state would be in memory instead of registers, in every page.
      FASA_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = row_of(half);
        const int token = row / params.step.layout.gqa_group;
        const int newest = desc.start + first + token + 1 - page * kPageTokens;
        const bool seen = has_row(count, row) && slot < newest &&
                          (params.window <= 0 || slot >= newest - params.window);
        if (!seen) continue;
        const std::byte* value =
            row_at(params.step, simt::block_z(), simt::block_y(), page * kPageTokens + slot,
                   params.pages, NewRows::kInWriteBackBuffer) +
            params.step.layout.row.key_bytes();
        const RowVector values = RowVector::of(kRow, value, kDim);
        const float weight = shared[row * kPageTokens + slot];
        FASA_UNROLL
        for (int i = 0; i < 4 * kDepths; ++i) {
          const float v = values.at(dim_of(i / 4, i / 2 % 2, i % 2));
          if (v - v == 0.0f) continue;  // finite
          state.out[i / 2][2 * half + i % 2] += weight * v;
        }
      }
    }
    simt::sync_block();  // the weights have been read
  }

  FASA_DEVICE void write(const SequenceDesc& desc, int first, int count, const State& state) const {
    FASA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(half);
      if (!has_row(count, row)) continue;
      const float top = state.top[half];
      const float sum = state.sum[half];
      const bool leader = simt::lane() % 4 == 0;
      float* const to = params.last_wave ? nullptr : state_of(desc, first, row);
      if (leader && to != nullptr) to[0] = top, to[1] = sum;
      if (leader && params.last_wave && params.lse != nullptr) {
        params.lse[query_at(desc, first, row)] = log_sum_exp(top, sum);
      }
      const int64_t token = desc.first_token + first + row / params.step.layout.gqa_group;
      const int64_t at = params.out.offset(token, head_of(row));
      FASA_UNROLL
      for (int i = 0; i < 4 * kDepths; ++i) {
        const int d = dim_of(i / 4, i / 2 % 2, i % 2);
        const float value = state.out[i / 2][2 * half + i % 2];
        if (to != nullptr) {
          to[kStateHeader + d] = value;
        } else {
          store(params.out.dtype, params.out.data, at + d, value / divisor_of(top, sum));
        }
      }
    }
  }
};

template <RowDType::Kind kRow, int kDim, typename Launcher>
void launch_prefill_tiles_of(const PrefillParams& params, const Launcher& launch) {
  const CacheLayout& layout = params.step.layout;
  const auto run = [&](auto kernel) {
    using Kernel = decltype(kernel);
    kernel.params = params;
    kernel.tokens = Kernel::kRows / layout.gqa_group;
    const auto tokens = static_cast<int>(params.q.tokens);
    launch(kernel, {.x = (tokens + kernel.tokens - 1) / kernel.tokens,
                    .y = layout.kv_heads,
                    .z = params.step.count,
                    .shared_bytes = Kernel::kSharedBytes});
  };
  if (params.q.dtype == PrefillTileKernel<kRow, kDim, false>::kElement) {
    run(PrefillTileKernel<kRow, kDim, false>{});
  } else {
    run(PrefillTileKernel<kRow, kDim, true>{});
  }
}

template <RowDType::Kind kRow, typename Launcher>
void launch_prefill_tiles_of(const PrefillParams& params, const Launcher& launch) {
  switch (params.step.layout.row.key_dim) {
    case 64:
      return launch_prefill_tiles_of<kRow, 64>(params, launch);
    case 80:
      return launch_prefill_tiles_of<kRow, 80>(params, launch);
    case 96:
      return launch_prefill_tiles_of<kRow, 96>(params, launch);
    case 128:
      return launch_prefill_tiles_of<kRow, 128>(params, launch);
    default:
      return launch_prefill_tiles_of<kRow, 256>(params, launch);
  }
}

// Depends only on dtypes, widths and GPU, never on the step's tokens: the other kernel gives other
// bits.
inline bool takes_prefill_tiles(const CacheLayout& layout, int compute_capability) {
  constexpr int kMaxGroup = 64;
  const RowFormat& row = layout.row;
  if (row.key_dim != row.value_dim || layout.gqa_group > kMaxGroup) return false;
  if (!has_prefill_tiles(row.key_dim) || row.dtype == RowDType::kF32) return false;
  return row.dtype == RowDType::kF16 || compute_capability >= 80;
}

// Returns false if these kernels do not support the call.
template <typename Launcher>
bool launch_prefill_tiles(const PrefillParams& params, const Launcher& launch) {
  const CacheLayout& layout = params.step.layout;
  if (!takes_prefill_tiles(layout, launch.compute_capability())) return false;
  switch (layout.row.dtype) {
    case RowDType::kF16:
      return launch_prefill_tiles_of<RowDType::kF16>(params, launch), true;
    case RowDType::kBF16:
      return launch_prefill_tiles_of<RowDType::kBF16>(params, launch), true;
    case RowDType::kInt8:
      return launch_prefill_tiles_of<RowDType::kInt8>(params, launch), true;
    case RowDType::kF32:
      break;
  }
  return false;
}

}  // namespace fasa::cuda
