#include <algorithm>

#include <cstring>

#include "tests/support/reference/kernels.h"
#include "tests/support/reference/rows.h"
#include "tests/support/reference/slices.h"

namespace fasa::reference {
namespace {

// Adds a token by its value codes, with a scaled score.
void add_coded(const AttendParams& params, int sequence, int kv_head, int position, double score,
               RunningSoftmax* softmax) {
  const CacheLayout& layout = params.step.layout;
  const SequenceDesc& desc = params.step.sequences[sequence];
  const int layer = params.step.layer;
  const int page = position / kPageTokens;
  const bool sealed = page < desc.sealed_pages();
  const std::byte* data = desc.tail + layout.value_tail_offset(layer, kv_head);
  float base = 1;
  if (sealed) {
    data = desc.slice_blocks[page] + layout.value_offset(layer, kv_head);
    std::memcpy(&base, desc.slice_blocks[page] + layout.value_base_offset(layer, kv_head), 4);
  }
  const SliceFormat format = sealed ? layout.values : layout.values.tail();
  softmax->add_value(score, [&](int d) {
    return static_cast<double>(slice_value(format, data, base, d, position % kPageTokens));
  });
}

void add_low_bit(const AttendParams& params, int sequence, int query, RunningSoftmax* softmax) {
  const CacheLayout& layout = params.step.layout;
  const LowBitSet& low_bit = params.low_bit;
  const int kv_head = query / layout.gqa_group;
  const int64_t head = int64_t{sequence} * layout.kv_heads + kv_head;
  const int64_t of_query = int64_t{sequence} * layout.query_heads() + query;
  for (int i = 0; i < low_bit.sizes[head]; ++i) {
    const double score = static_cast<double>(low_bit.scores[of_query * low_bit.capacity + i]);
    add_coded(params, sequence, kv_head, low_bit.positions[head * low_bit.capacity + i],
              score * static_cast<double>(params.scale), softmax);
  }
}

// Exact in the weights, which kernels may round (low_bit_rounding_inl.h).
void add_low_bit_pages(const AttendParams& params, int sequence, int query,
                       RunningSoftmax* softmax) {
  const CacheLayout& layout = params.step.layout;
  const LowBitPages& low_bit = params.low_bit_pages;
  const int kv_head = query / layout.gqa_group;
  const int pages = low_bit.counts[int64_t{sequence} * layout.kv_heads + kv_head];
  const int first_page = pages_of(params.step.sequences[sequence].end()) - pages;
  const int64_t first = low_bit.at(int64_t{sequence} * layout.query_heads() + query);
  for (int i = 0; i < pages * kPageTokens; ++i) {
    const int16_t code = low_bit.scores[first * kPageTokens + i];
    if (code == kNoScoreCode) continue;
    const auto maximum = static_cast<double>(low_bit.maxima[first + i / kPageTokens]);
    add_coded(params, sequence, kv_head, first_page * kPageTokens + i,
              maximum + code / static_cast<double>(kScoreUnits), softmax);
  }
}

void attend_query(const AttendParams& params, int sequence, int query) {
  const CacheLayout& layout = params.step.layout;
  const SequenceDesc& desc = params.step.sequences[sequence];
  const int kv_head = query / layout.gqa_group;
  const int64_t head = int64_t{sequence} * layout.kv_heads + kv_head;
  const int first = params.window > 0 ? std::max(0, desc.end() - params.window) : 0;
  const int total =
      params.selected_sizes != nullptr ? params.selected_sizes[head] : desc.end() - first;

  RunningSoftmax softmax(layout.row, params.q, desc.first_token, query, params.scale,
                         params.step.score_cap);
  float* state = nullptr;
  if (params.state != nullptr) {
    const int64_t index = int64_t{sequence} * layout.query_heads() + query;
    state = params.state + index * (layout.row.value_dim + 2);
  }
  if (!params.first_wave) softmax.load(state);
  for (int i = params.begin; i < std::min(params.end, total); ++i) {
    const bool selected = params.selected_sizes != nullptr;
    double bias = 0;
    if (params.step.slopes != nullptr) {
      const int position = selected ? params.sets[head * params.selected_capacity + i] : first + i;
      bias = static_cast<double>(params.step.slopes[query]) * (position - (desc.end() - 1));
    }
    softmax.add(selected ? params.rows[head * (params.end - params.begin) + i - params.begin]
                         : find_row(params.step, sequence, kv_head, first + i, params.pages, false),
                bias);
  }
  if (!params.last_wave) return softmax.store(state);
  if (params.low_bit.capacity > 0) add_low_bit(params, sequence, query, &softmax);
  if (params.low_bit_pages.capacity > 0) add_low_bit_pages(params, sequence, query, &softmax);
  const int64_t out = int64_t{desc.first_token} * layout.query_heads() + query;
  softmax.write(params.out, desc.first_token, query,
                params.lse != nullptr ? params.lse + out : nullptr);
}

}  // namespace

// All work is done in the phase that folds.
void attend(const AttendParams& params) {
  if (params.phase == AttendPhase::kReadyTiles) return;
  for (int sequence = 0; sequence < params.step.count; ++sequence) {
    if (params.step.sequences[sequence].mode != StepMode::kDecode) continue;
    const int group = params.step.layout.gqa_group;
    for (int i = 0; i < params.step.head_count() * group; ++i) {
      attend_query(params, sequence, params.step.first_head() * group + i);
    }
  }
}

}  // namespace fasa::reference
