// Exact causal attention of a prefill on tensor cores, for rows of bf16, f16 or codes, with keys and
// values of kDim: a block takes kRows rows (query tokens times the query heads of a group), a warp
// sixteen of them, whose queries, scores of a page and outputs stay in its registers. Keys and
// values of a page lie in shared memory as they are stored; codes as bf16, which holds them exactly,
// and their scales come to the scores and to the weights. Wide heads read their queries anew in each
// page and stage values over keys: neither registers nor 48 KiB would hold them.
//
// Weights are two numbers of the rows' type, the second what the first leaves, so that they are
// exact to 2^-16 and more; so are queries of another type than the rows'. Pages are folded in order
// by an online softmax as in prefill_inl.h: a query's bits come from its own q and the rows.
#pragma once

#include "kernels/cuda/mma_inl.h"
#include "kernels/cuda/rows_inl.h"
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
template <DType kElement>
FASA_DEVICE uint32_t packed(float low, float high) {
  return element_bits(kElement, low) | element_bits(kElement, high) << 16;
}
// What rounding leaves of two numbers; of those that have no finite rest: nothing.
template <DType kElement>
FASA_DEVICE uint32_t packed_rest(float low, float high) {
  const float a = low - rounded<kElement>(low);
  const float b = high - rounded<kElement>(high);
  return packed<kElement>(a == a ? a : 0.0f, b == b ? b : 0.0f);
}

// What a width costs. Rows of `kDim` / 2 + 4 words: no two lanes of a product's loads meet in a bank.
template <int kDim>
struct PrefillTileDim {
  static_assert(kDim % 16 == 0);                // a product's depth
  static constexpr int kDepths = kDim / 16;     // products deep is a key
  static constexpr int kStride = kDim / 2 + 4;  // words of a staged vector
  static constexpr int64_t kVectorWords = int64_t{kPageTokens} * kStride;
  static constexpr bool kKeepsQueries = kDim <= 128;  // in registers, from page to page
  static constexpr bool kKeepsKeys = kDim <= 128;     // beside the values, while those are read
};

constexpr bool has_prefill_tiles(int dim) {
  return dim == 64 || dim == 80 || dim == 96 || dim == 128 || dim == 256;
}

// `kSplit`: queries are of another type than the rows.
template <RowDType::Kind kRow, int kDim, bool kSplit>
struct PrefillTileKernel {
  static constexpr const char* kName = "prefill";
  static constexpr int kThreads = 128;
  static constexpr int kResidentBlocks = 2;
  static constexpr bool kCoded = RowDType(kRow).is_coded();
  static constexpr DType kElement = kCoded ? DType::kBF16 : RowDType(kRow).elements();
  static constexpr int kRows = 64;
  static constexpr int kGroups = kPageTokens / 8;  // of keys, as many as a product is wide
  using Dim = PrefillTileDim<kDim>;
  static constexpr int kDepths = Dim::kDepths;
  static constexpr int kStride = Dim::kStride;
  static constexpr int kKeptDepths = Dim::kKeepsQueries ? kDepths : 1;  // of queries
  static constexpr int64_t kStagedWords = (Dim::kKeepsKeys ? 2 : 1) * Dim::kVectorWords;
  static constexpr int64_t kScales = kCoded ? 2 * kPageTokens : 0;  // of keys, then of values
  static constexpr int64_t kSharedBytes = kStagedWords * 4 + 16 + kScales * 4;  // and a flag

  PrefillParams params;
  int tokens = 0;  // query tokens of a block

  // What a thread has of its two rows: lane / 4 of its warp's sixteen, and eight below.
  struct State {
    uint32_t q[kKeptDepths][4];
    uint32_t q_rest[kSplit ? kKeptDepths : 1][4];
    float out[2 * kDepths][4];  // see dim_of
    float top[2];
    float sum[2];
  };

  // Blocks: parts of the query tokens, KV heads, sequences. Later queries see more: they go first.
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
    for (; page < end; ++page) add_page(desc, first, count, page, state);
    write(desc, first, count, state);
  }

 private:
  FASA_DEVICE static uint32_t* keys() { return reinterpret_cast<uint32_t*>(simt::shared_memory()); }
  FASA_DEVICE static uint32_t* values() {
    return Dim::kKeepsKeys ? keys() + Dim::kVectorWords : keys();
  }
  // Set where a page has values that are not finite.
  FASA_DEVICE static uint32_t& spoilt_flag() { return keys()[kStagedWords]; }
  FASA_DEVICE static float* key_scales() {
    return reinterpret_cast<float*>(keys() + kStagedWords + 4);
  }
  FASA_DEVICE static float* value_scales() { return key_scales() + kPageTokens; }

  // Of the block's rows; `half`: the lower eight or the upper ones.
  FASA_DEVICE static int row_of(int half) {
    return simt::warp() * 16 + simt::lane() / 4 + 8 * half;
  }
  // Element `i` of a thread's out[2 * depth + odd], which is of row i / 2: loads of values bring
  // two neighbours at a time, and one goes to an even product, the other to the odd one beside it.
  FASA_DEVICE static int dim_of(int depth, int odd, int i) {
    return depth * 16 + simt::lane() % 4 * 4 + 2 * (i % 2) + odd;
  }
  FASA_DEVICE int head_of(int row) const {
    const int group = params.step.layout.group;
    return simt::block_y() * group + row % group;
  }
  FASA_DEVICE int64_t query_at(const SequenceDesc& desc, int first, int row) const {
    const int64_t token = desc.first_token + first + row / params.step.layout.group;
    return token * params.step.layout.query_heads() + head_of(row);
  }
  FASA_DEVICE float* state_of(const SequenceDesc& desc, int first, int row) const {
    return params.state + query_at(desc, first, row) * (kStateHeader + kDim);
  }
  FASA_DEVICE bool has_row(int count, int row) const {
    return row < count * params.step.layout.group;
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

  // Sixteen columns of a row's query, to where a kept depth lies or to the only place.
  FASA_DEVICE void load_queries(const SequenceDesc& desc, int first, int count, int half, int depth,
                                State& state) const {
    const int row = row_of(half);
    const bool there = has_row(count, row);
    const int64_t token = desc.first_token + first + row / params.step.layout.group;
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

  enum class Part : uint8_t { kBoth, kKeys, kValues };

  // A row is its key, then its value: a warp a row, 16 bytes a lane. What is beyond is zero, and so
  // are values that are not finite, which must not meet the weights of queries that don't see them.
  template <Part kPart>
  FASA_DEVICE void stage(int page, int slots) const {
    if (kPart != Part::kValues && simt::thread_index() == 0) spoilt_flag() = 0;
    simt::sync_block();  // also: what lay there has been read
    for (int slot = simt::warp(); slot < kPageTokens; slot += simt::block_warps()) {
      const std::byte* from =
          slot < slots ? row_at(params.step, simt::block_z(), simt::block_y(),
                                page * kPageTokens + slot, params.pages, NewRows::kInStage)
                       : nullptr;
      if constexpr (kCoded) {
        stage_codes<kPart>(slot, from);
      } else {
        stage_elements<kPart>(slot, from);
      }
    }
    simt::sync_block();
  }
  template <Part kPart>
  FASA_DEVICE static void stage_elements(int slot, const std::byte* from) {
    constexpr int kWords = kDim / 8;  // of 16 bytes, of a vector
    constexpr int kFirst = kPart == Part::kValues ? kWords : 0;
    constexpr int kEnd = kPart == Part::kKeys ? kWords : 2 * kWords;
    for (int i = kFirst + simt::lane(); i < kEnd; i += simt::kWarpThreads) {
      simt::Word16 word = {};
      if (from != nullptr) word = reinterpret_cast<const simt::Word16*>(from)[i];
      uint32_t* const to = (i < kWords ? keys() : values()) + slot * kStride + i % kWords * 4;
      if (i >= kWords) make_finite(word);
      *reinterpret_cast<simt::Word16*>(to) = word;
    }
  }
  // Two codes a word, in bf16. Values that are not numbers weigh nothing here.
  template <Part kPart>
  FASA_DEVICE static void stage_codes(int slot, const std::byte* from) {
    constexpr int kFirst = kPart == Part::kValues ? kDim / 2 : 0;
    constexpr int kEnd = kPart == Part::kKeys ? kDim / 2 : kDim;
    for (int i = kFirst + simt::lane(); i < kEnd; i += simt::kWarpThreads) {
      const uint16_t pair = from == nullptr ? 0 : reinterpret_cast<const uint16_t*>(from)[i];
      const auto code = [pair](int shift) {
        return static_cast<float>(static_cast<int8_t>(pair >> shift & 0xff));
      };
      uint32_t* const to = (i < kDim / 2 ? keys() : values()) + slot * kStride;
      to[i % (kDim / 2)] = packed<kElement>(code(0), code(8));
    }
    if (simt::lane() != 0) return;
    if (kPart != Part::kValues) key_scales()[slot] = from == nullptr ? 0 : scale_of(from, kDim);
    if (kPart == Part::kKeys) return;
    const float scale = from == nullptr ? 0 : scale_of(from + kDim, kDim);
    value_scales()[slot] = scale == scale ? scale : 0;
    if (scale != scale) simt::atomic_or(&spoilt_flag(), 1u);
  }
  FASA_DEVICE static void make_finite(simt::Word16& word) {
    constexpr uint32_t kExponent = kElement == DType::kBF16 ? 0x7f80u : 0x7c00u;
    FASA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = word.words[i] & kExponent;
      const uint32_t high = word.words[i] >> 16 & kExponent;
      if (low != kExponent && high != kExponent) continue;
      if (low == kExponent) word.words[i] &= 0xffff0000u;
      if (high == kExponent) word.words[i] &= 0x0000ffffu;
      simt::atomic_or(&spoilt_flag(), 1u);
    }
  }

  FASA_DEVICE void add_page(const SequenceDesc& desc, int first, int count, int page,
                            State& state) const {
    const int last = desc.start + first + count - page * kPageTokens;
    const int slots = last < kPageTokens ? last : kPageTokens;
    simt::sync_block();  // the page before has been read
    stage<Dim::kKeepsKeys ? Part::kBoth : Part::kKeys>(page, slots);
    float weights[kGroups][4] = {};
    score(desc, first, count, state, weights);
    if constexpr (!Dim::kKeepsKeys) stage<Part::kValues>(page, slots);
    if constexpr (kCoded) scale_scores(weights);
    FASA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int token = row_of(half) / params.step.layout.group;
      const int newest = desc.start + first + token + 1 - page * kPageTokens;
      const int oldest = params.window > 0 ? newest - params.window : 0;
      const int begin = has_row(count, row_of(half)) ? oldest : kPageTokens;
      if (params.step.slopes != nullptr) {
        add_slope(half, params.step.slopes[head_of(row_of(half))], newest - 1, weights);
      }
      if (params.step.score_cap > 0) cap_scores(half, params.step.score_cap, weights);
      weigh(half, begin, newest, state, weights);
    }
    add_values(weights, state);
    if (spoilt_flag() != 0) add_spoilt(desc, first, count, page, weights, state);
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
            keys() + (n * 8 + simt::lane() / 4) * kStride + depth * 8 + simt::lane() % 4;
        const uint32_t b[2] = {at[0], at[4]};
        mma_rows<kElement>(scores[n], state.q[of], b);
        if constexpr (kSplit) mma_rows<kElement>(scores[n], state.q_rest[of], b);
      }
    }
  }

  FASA_DEVICE static void scale_scores(float (&scores)[kGroups][4]) {
    FASA_UNROLL
    for (int n = 0; n < kGroups; ++n) {
      const float* scales = key_scales() + n * 8 + simt::lane() % 4 * 2;
      FASA_UNROLL
      for (int i = 0; i < 4; ++i) scores[n][i] *= scales[i % 2];
    }
  }

  // ALiBi's part of one row's scores, `query`: its slot, which may lie in a later page.
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

  // One row's scores to weights, by the four lanes that share it. It sees slots [begin, end).
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
          const float* scales = value_scales() + (2 * k + i / 2) * 8 + simt::lane() % 4 * 2;
          scaled[0] *= scales[0];
          scaled[1] *= scales[1];
        }
        a[i] = packed<kElement>(scaled[0], scaled[1]);
        rest[i] = packed_rest<kElement>(scaled[0], scaled[1]);
      }
      const uint32_t* at = values() + (k * 16 + simt::lane() % 4 * 2) * kStride + simt::lane() / 4;
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

  // The values that staging left out, one by one: rare, and slow.
  FASA_DEVICE void add_spoilt(const SequenceDesc& desc, int first, int count, int page,
                              const float (&weights)[kGroups][4], State& state) const {
    auto* const shared = reinterpret_cast<float*>(simt::shared_memory());  // [rows][slots]
    simt::sync_block();  // all have added the page's values
    FASA_UNROLL
    for (int n = 0; n < kGroups; ++n) {
      FASA_UNROLL
      for (int i = 0; i < 4; ++i) {
        shared[row_of(i / 2) * kPageTokens + n * 8 + simt::lane() % 4 * 2 + i % 2] = weights[n][i];
      }
    }
    simt::sync_block();
    for (int slot = 0; slot < kPageTokens; ++slot) {
      // Unrolled, or the state would be memory in place of registers, in every page.
      FASA_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = row_of(half);
        const int token = row / params.step.layout.group;
        const int newest = desc.start + first + token + 1 - page * kPageTokens;
        const bool seen = has_row(count, row) && slot < newest &&
                          (params.window <= 0 || slot >= newest - params.window);
        if (!seen) continue;
        const std::byte* value =
            row_at(params.step, simt::block_z(), simt::block_y(), page * kPageTokens + slot,
                   params.pages, NewRows::kInStage) +
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
      const int64_t token = desc.first_token + first + row / params.step.layout.group;
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
    kernel.tokens = Kernel::kRows / layout.group;
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

// By dtypes, widths and GPU alone, never by the step's tokens, for the other kernel's bits are
// others.
inline bool takes_prefill_tiles(const CacheLayout& layout, int compute_capability) {
  constexpr int kMaxGroup = 64;
  const RowFormat& row = layout.row;
  if (row.key_dim != row.value_dim || layout.group > kMaxGroup) return false;
  if (!has_prefill_tiles(row.key_dim) || row.dtype == RowDType::kF32) return false;
  return row.dtype == RowDType::kF16 || compute_capability >= 80;
}

// True where it was for these kernels.
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
