// Keys and queries of one sequence and layer, as input of selections.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "scheduler/selection/selection_history.h"
#include "scheduler/selection/selection_table.h"
#include "scheduler/selection/token_selection.h"
#include "scheduler/step_settings.h"

namespace fasa::testing {

// Two KV heads of three query heads each, f32 rows of odd width.
class SelectionCase {
 public:
  static constexpr int kKvHeads = 2;
  static constexpr int kGroup = 3;
  static constexpr int kQueryHeads = kKvHeads * kGroup;
  static constexpr int kDim = 11;
  static constexpr float kScale = 0.3f;

  // `value(i)`: element i of the keys [tokens][kv_heads][dim], then of the queries [tokens]
  // [query_heads][dim].
  template <typename Value>
  SelectionCase(int token_count, const Value& value) : tokens(token_count) {
    settings.layout.layers = 1;
    settings.layout.kv_heads = kKvHeads;
    settings.layout.gqa_group = kGroup;
    settings.layout.row = {DType::kF32, kDim, 3};
    settings.layout.sinks = 2;
    settings.layout.recent = 4;
    settings.scale = kScale;
    settings.layers = {{.dense = false, .budget = {.tokens = 24, .share = 0}, .window = 0}};
    uint64_t at = 0;
    keys.resize(static_cast<size_t>(tokens * kKvHeads * kDim));
    queries.resize(static_cast<size_t>(tokens * kQueryHeads * kDim));
    for (float& key : keys) key = value(at++);
    for (float& query : queries) query = value(at++);
    store_rows();
  }

  const float* key(int token, int kv_head) const {
    return keys.data() + (int64_t{token} * kKvHeads + kv_head) * kDim;
  }
  const float* query(int token, int head) const {
    return queries.data() + (int64_t{token} * kQueryHeads + head) * kDim;
  }
  double dot(int query_token, int head, int token) const {
    double sum = 0;
    for (int d = 0; d < kDim; ++d) {
      sum += static_cast<double>(query(query_token, head)[d]) * key(token, head / kGroup)[d];
    }
    return sum;
  }

  // The descriptor of a step of `count` tokens from `start`.
  SequenceDesc sequence(int start, int count, StepMode mode) const {
    SequenceDesc desc;
    desc.mode = mode;
    desc.tokens = count;
    desc.start = start;
    desc.row_blocks = blocks_.data();
    return desc;
  }
  SelectParams params(const SequenceDesc& desc) const {
    SelectParams params;
    params.step = {.layout = settings.layout, .sequences = &desc, .count = 1, .layer = 0};
    params.q =
        ConstTensorView::dense(query(desc.start, 0), DType::kF32, desc.tokens, kQueryHeads, kDim);
    params.budget = settings.layers[0].budget;
    params.window = settings.layers[0].window;
    return params;
  }

  // The tokens that a stateless selection chooses for the last token.
  std::vector<int32_t> choose(const TokenSelection& selection, int kv_head) const {
    const SequenceDesc desc = sequence(tokens - 1, 1, StepMode::kDecode);
    const SelectParams select = params(desc);
    HeadStep step{.params = select,
                  .sequence = 0,
                  .kv_head = kv_head,
                  .query_heads = kGroup,
                  .scale = kScale,
                  .plan = plan_selection(select, desc),
                  .queries = {}};
    const float* first = query(tokens - 1, kv_head * kGroup);
    step.queries.assign(first, first + kGroup * kDim);
    std::vector<int32_t> set(static_cast<size_t>(tokens));
    set.resize(static_cast<size_t>(selection.choose(step, nullptr, set.data())));
    return set;
  }
  std::vector<int32_t> choose(const std::string& name, int kv_head) const {
    return choose(*make_selection(find_selection(name).value()), kv_head);
  }

  // The tokens of one head that a selection with eviction keeps after each decode step from
  // `prompt` on.
  std::vector<std::vector<int32_t>> keep(const std::string& name, int prompt, int kv_head) {
    settings.selection = make_selection(find_selection(name).value());
    SelectionHistory history(settings);
    work(history, 0, prompt, StepMode::kPrefill, kv_head);
    std::vector<std::vector<int32_t>> kept;
    for (int token = prompt; token < tokens; ++token) {
      kept.push_back(work(history, token, 1, StepMode::kDecode, kv_head));
    }
    return kept;
  }
  std::vector<int32_t> work(SelectionHistory& history, int start, int count, StepMode mode,
                            int kv_head) const {
    const SequenceDesc desc = sequence(start, count, mode);
    const SelectParams select = params(desc);
    history.record(0, select.q, desc);
    return history.advance(select.step, desc, kv_head);
  }

  int tokens;
  StepSettings settings;
  std::vector<float> keys;
  std::vector<float> queries;

 private:
  void store_rows() {
    const CacheLayout& layout = settings.layout;
    const int pages = pages_of(tokens);
    rows_.resize(static_cast<size_t>(pages * layout.row_block_bytes()));
    for (int page = 0; page < pages; ++page) {
      blocks_.push_back(rows_.data() + page * layout.row_block_bytes());
    }
    for (int token = 0; token < tokens; ++token) {
      for (int head = 0; head < kKvHeads; ++head) {
        std::byte* row = blocks_[static_cast<size_t>(token / kPageTokens)] +
                         layout.row_offset(0, head, token % kPageTokens);
        for (int d = 0; d < kDim; ++d) store_element(DType::kF32, row, d, key(token, head)[d]);
      }
    }
  }

  std::vector<std::byte> rows_;
  std::vector<std::byte*> blocks_;
};

}  // namespace fasa::testing
