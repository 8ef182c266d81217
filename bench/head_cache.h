// One layer and KV head of a model as a cache of its own, for studies in which every selection sees
// the same keys and queries.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/estimated_rule.h"
#include "kernels/cpu/kernels.h"
#include "runtime/calibrate/calibrate_samples.h"
#include "runtime/config/config.h"
#include "scheduler/selection/selection_history.h"
#include "scheduler/selection/selection_stage.h"
#include "scheduler/selection/selection_table.h"
#include "scheduler/selection/slice_scores.h"
#include "scheduler/selection/vector_math.h"

namespace fasa::bench {

constexpr int kSinks = 4;
constexpr int kRecent = 16;

struct Variant {
  std::string label;
  std::string kind = "fasa";
  SelectionOptions options = {};
  SliceDType slice = SliceDType::kInt2;
  int chunks = 0;  // FCs in the slices, 0 = all
  LayerBudget layer_budget = LayerBudget::kUniform;
  bool estimated = false;  // log-softmax by estimated sums
  bool adaptive = false;   // `chunks` is the mean over heads: heads with more gain get more
};

// Makes a variant's selection; variants of the fused kernel become a SliceSelection.
inline std::shared_ptr<const TokenSelection> make(const Variant& variant) {
  if (variant.estimated) return std::make_shared<EstimatedLogSoftmax>(variant.options);
  const SelectionKind kind = find_selection(variant.kind).value();
  auto made = make_selection(kind, variant.options);
  return made ? made : std::make_shared<SliceSelection>(variant.options);
}

// Full attention of the queries of one layer and KV head.
struct Truth {
  int32_t position;
  bool question;
  std::vector<std::vector<float>> attention;  // [query heads of the GQA group][tokens]
};

inline Truth truth_at(const HeadSamples& samples, int32_t position, bool question) {
  Truth truth{position, question, {}};
  const auto visible = static_cast<size_t>(position) + 1;
  for (int head = 0; head < samples.gqa_group; ++head) {
    std::vector<float> scores(visible);
    const float* query = samples.query(static_cast<size_t>(position), head);
    for (int d = 0; d < samples.key_dim; ++d) {
      const float* plane = samples.key_plane(d);
      for (size_t t = 0; t < visible; ++t) scores[t] += query[d] * plane[t];
    }
    softmax(scores, samples.scale);
    truth.attention.push_back(std::move(scores));
  }
  return truth;
}

inline double captured(const Truth& truth, int head, std::span<const int32_t> set) {
  double sum = 0;
  for (const int32_t token : set) {
    if (token < kSinks || token > truth.position - kRecent) continue;
    sum +=
        static_cast<double>(truth.attention[static_cast<size_t>(head)][static_cast<size_t>(token)]);
  }
  return sum;
}

// One layer and KV head of the model as a cache of its own, filled as a sequence grows.
class HeadCache {
 public:
  HeadCache(const HeadSamples& samples, const Variant& variant, TokenBudget budget,
            std::span<const int16_t> ranked_dims)
      : samples_(samples) {
    settings_.selection = make(variant);
    settings_.selection_evicts = settings_.selection->make_policy() != nullptr;
    settings_.selected_per_query_head = variant.options.scope == SelectionScope::kQueryHead;
    settings_.scale = samples.scale;
    settings_.page_tokens = variant.options.page_tokens;
    settings_.layers = {{.dense = false, .budget = budget, .window = samples.window}};
    CacheLayout& layout = settings_.layout;
    layout.layers = 1;
    layout.kv_heads = 1;
    layout.gqa_group = samples.gqa_group;
    layout.row = {DType::kF32, samples.key_dim, 1};
    layout.sinks = kSinks;
    layout.recent = kRecent;
    if (settings_.selection->reads_slices()) {
      const int all = static_cast<int>(ranked_dims.size());
      layout.slice = {variant.slice, variant.chunks > 0 ? 2 * variant.chunks : all};
      dims_.assign(ranked_dims.begin(), ranked_dims.begin() + layout.slice.dims);
    }
    const auto pages = static_cast<size_t>(pages_of(samples.tokens));
    rows_.resize(pages * lines(layout.row_block_bytes()));
    slices_.resize(pages * lines(layout.slice_block_bytes()));
    tail_.resize(lines(layout.tail_bytes()));
    for (size_t page = 0; page < pages; ++page) {
      row_blocks_.push_back(rows_[page * lines(layout.row_block_bytes())].bytes);
      slice_blocks_.push_back(slices_[page * lines(layout.slice_block_bytes())].bytes);
    }
    if (settings_.selection_evicts) history_.emplace(settings_);
    sets_.resize(static_cast<size_t>(settings_.selected_heads()) * static_cast<size_t>(kCapacity));
    sizes_.resize(static_cast<size_t>(settings_.selected_heads()));
    transpose_keys();
  }

  void append(int32_t start, int count, StepMode mode) {
    for (int32_t at = start; at < start + count;) {  // page by page
      const int now = std::min(start + count - at, kPageTokens - at % kPageTokens);
      const SequenceDesc sequence = describe(at, now, mode);
      const auto dim = static_cast<int64_t>(samples_.key_dim);
      cpu::run(AppendParams{
          .step = step(sequence),
          .k = ConstTensorView::dense(keys_.data() + at * dim, DType::kF32, now, 1, dim),
          .v = ConstTensorView::dense(kZeros, DType::kF32, now, 1, 1)});
      at += now;
    }
  }
  void observe(int32_t start, int count) const {
    if (!history_) return;
    const SequenceDesc sequence = describe(start, count, StepMode::kPrefill);
    stage(sequence).observe_prefill();
  }
  bool remembers() const { return history_.has_value(); }
  // Distant attention captured over the GQA group, for the appended token at `position`.
  double select(const Truth* truth, int32_t position) {
    const SequenceDesc sequence = describe(position, 1, StepMode::kDecode);
    stage(sequence).select();
    double sum = 0;
    if (truth == nullptr) return sum;
    const int sharers = samples_.gqa_group / settings_.selected_heads();
    for (int head = 0; head < samples_.gqa_group; ++head) {
      const auto set = static_cast<size_t>(head / sharers);
      sum += captured(*truth, head,
                      std::span(sets_).subspan(set * static_cast<size_t>(kCapacity),
                                               static_cast<size_t>(sizes_[set])));
    }
    return sum;
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  static constexpr int32_t kCapacity = 1 << 14;
  static size_t lines(int64_t bytes) { return static_cast<size_t>((bytes + 63) / 64); }

  void transpose_keys() {
    keys_.resize(static_cast<size_t>(samples_.tokens * samples_.key_dim));
    for (int64_t t = 0; t < samples_.tokens; ++t) {
      for (int d = 0; d < samples_.key_dim; ++d) {
        keys_[static_cast<size_t>(t * samples_.key_dim + d)] = samples_.key_plane(d)[t];
      }
    }
  }
  SequenceDesc describe(int32_t start, int count, StepMode mode) const {
    SequenceDesc sequence;
    sequence.mode = mode;
    sequence.tokens = count;
    sequence.start = start;
    sequence.row_blocks = row_blocks_.data();
    sequence.slice_blocks = slice_blocks_.data();
    sequence.tail = const_cast<std::byte*>(tail_.empty() ? nullptr : tail_.front().bytes);
    return sequence;
  }
  StepParams step(const SequenceDesc& sequence) const {
    return {.layout = settings_.layout,
            .sequences = &sequence,
            .count = 1,
            .layer = 0,
            .slice_dims = dims_.data()};
  }
  SelectionStage stage(const SequenceDesc& sequence) const {
    tables_.histories = {history_ ? const_cast<SelectionHistory*>(&*history_) : nullptr};
    const auto dim = static_cast<int64_t>(samples_.key_dim);
    return {settings_, tables_,
            SelectParams{
                .step = step(sequence),
                .q = ConstTensorView::dense(samples_.query(static_cast<size_t>(sequence.start), 0),
                                            DType::kF32, sequence.tokens, samples_.gqa_group, dim),
                .budget = settings_.layers[0].budget,
                .window = samples_.window,
                .page_tokens = settings_.page_tokens,
                .selected_capacity = kCapacity,
                .sets = const_cast<int32_t*>(sets_.data()),
                .selected_sizes = const_cast<int32_t*>(sizes_.data())}};
  }

  static inline const float kZeros[kPageTokens] = {};
  const HeadSamples& samples_;
  StepSettings settings_;
  mutable StepContext tables_;
  std::vector<int16_t> dims_;
  std::vector<float> keys_;
  std::vector<Line> rows_, slices_, tail_;
  std::vector<std::byte*> row_blocks_, slice_blocks_;
  std::optional<SelectionHistory> history_;
  std::vector<int32_t> sets_, sizes_;
};

}  // namespace fasa::bench
