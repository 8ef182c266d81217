// A synthetic cache of one layer for selection tests: sequences with given keys, sealed as an
// append does, and the parameters of a select over them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/params.h"
#include "kernels/select_plan.h"
#include "kernels/slice_pack.h"
#include "tests/support/reference/select.h"

namespace fasa {

struct SelectShape {
  SliceDType dtype = SliceDType::kInt2;
  int dims = 16;
  int kv_heads = 1;
  int group = 1;
  int sinks = 4;
  int recent = 16;
  int window = 0;
  int budget = 32;
  int score_dims = 0;
  int ahead = 0;
  std::vector<float> slopes = {};  // ALiBi's, [kv_heads x group]
  int value_dim = 0;               // dimensions of value codes, which no selection reads; 0 = none
  float score_cap = 0;
  int fine = 0;  // of `dims`, in two parts
};

class SelectCase {
 public:
  // Dimension d of a key: key(sequence, kv_head, token, d); of a query: query(sequence, head, d).
  using KeyOf = std::function<float(int, int, int, int)>;
  using QueryOf = std::function<float(int, int, int)>;

  SelectCase(const SelectShape& shape, const std::vector<int>& lengths, const KeyOf& key,
             const QueryOf& query)
      : shape_(shape) {
    layout_.layers = 1;
    layout_.kv_heads = shape.kv_heads;
    layout_.gqa_group = shape.group;
    layout_.slice = {shape.dtype, shape.dims + shape.fine, SliceOrder::kByGroup, shape.fine};
    layout_.values = {SliceDType::kInt2, shape.value_dim, SliceOrder::kByToken};
    layout_.sinks = shape.sinks;
    layout_.recent = shape.recent;
    for (int h = 0; h < shape.kv_heads; ++h) {
      for (int d = 0; d < shape.dims; ++d) dims_.push_back(static_cast<int16_t>(d));
    }
    dims_ = stored_dims(layout_.slice, dims_);
    for (size_t s = 0; s < lengths.size(); ++s) {
      add_sequence(static_cast<int>(s), lengths[s], key);
      longest_ = std::max(longest_, lengths[s]);
    }
    for (size_t s = 0; s < lengths.size(); ++s) {
      descriptors_[s].slice_blocks = pointers_[s].data();
      descriptors_[s].tail = tails_[s].data();
    }
    const int heads = layout_.query_heads();
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int h = 0; h < heads; ++h) {
        for (int d = 0; d < shape.dims; ++d) query_.push_back(query(static_cast<int>(s), h, d));
      }
    }
    selected_capacity_ = std::max(longest_, shape.budget);
    sets_.resize(lengths.size() * static_cast<size_t>(shape.kv_heads * selected_capacity_));
    sizes_.resize(lengths.size() * static_cast<size_t>(shape.kv_heads));
  }

  SelectParams params() {
    SelectParams params;
    params.step = {.layout = layout_,
                   .sequences = descriptors_.data(),
                   .count = static_cast<int>(descriptors_.size()),
                   .slice_dims = dims_.data(),
                   .slopes = shape_.slopes.empty() ? nullptr : shape_.slopes.data(),
                   .score_cap = shape_.score_cap};
    params.q = ConstTensorView::dense(query_.data(), DType::kF32,
                                      static_cast<int64_t>(descriptors_.size()),
                                      layout_.query_heads(), shape_.dims);
    params.budget.tokens = shape_.budget;
    params.window = shape_.window;
    params.score_dims = shape_.score_dims;
    params.ahead = shape_.ahead;
    params.selected_capacity = selected_capacity_;
    params.page_capacity = pages_of(longest_);
    params.sets = sets_.data();
    params.selected_sizes = sizes_.data();
    counters_ = {};
    params.counters = &counters_;
    return params;
  }

  std::vector<int32_t> set_of(int sequence, int kv_head) const {
    const size_t at = static_cast<size_t>(sequence * shape_.kv_heads + kv_head);
    const int32_t* begin = sets_.data() + at * static_cast<size_t>(selected_capacity_);
    return {begin, begin + sizes_[at]};
  }
  // Clears the sets of all sequences and heads: sizes and entries not written by a later call are
  // negative.
  void forget_sets() {
    std::fill(sets_.begin(), sets_.end(), -5);
    std::fill(sizes_.begin(), sizes_.end(), -5);
  }
  const std::vector<int32_t>& sizes() const { return sizes_; }
  const StepCounters& counters() const { return counters_; }
  SequenceDesc& descriptor(int sequence) { return descriptors_[static_cast<size_t>(sequence)]; }
  std::byte* block(int sequence, int page) {
    return pointers_[static_cast<size_t>(sequence)][static_cast<size_t>(page)];
  }
  const CacheLayout& layout() const { return layout_; }

 private:
  using Page = std::unique_ptr<std::byte[]>;

  void add_sequence(int s, int length, const KeyOf& key) {
    const SliceFormat tail_format = layout_.slice.tail();
    std::vector<std::byte> tail(static_cast<size_t>(layout_.tail_bytes()));
    std::vector<std::byte*> pointers;
    SequenceDesc desc;
    desc.first_token = s;
    desc.tokens = 1;
    desc.start = length - 1;
    std::vector<float> values(static_cast<size_t>(shape_.dims));
    for (int t = 0; t < length; ++t) {
      for (int h = 0; h < shape_.kv_heads; ++h) {
        for (int d = 0; d < shape_.dims; ++d) values[static_cast<size_t>(d)] = key(s, h, t, d);
        write_tail_token(tail_format, dims_.data(), DType::kF32, values.data(), t % kPageTokens,
                         tail.data() + layout_.tail_offset(0, h));
      }
      if (t % kPageTokens != kPageTokens - 1 || t == length - 1) continue;
      blocks_.push_back(
          std::make_unique<std::byte[]>(static_cast<size_t>(layout_.slice_block_bytes())));
      std::byte* block = blocks_.back().get();
      for (int h = 0; h < shape_.kv_heads; ++h) {
        float base = 1;
        seal_page(layout_.slice, tail.data() + layout_.tail_offset(0, h),
                  block + layout_.slice_offset(0, h), &base);
        std::memcpy(block + layout_.head_index(0, h) * 4, &base, 4);
      }
      pointers.push_back(block);
    }
    descriptors_.push_back(desc);
    pointers_.push_back(std::move(pointers));
    tails_.push_back(std::move(tail));
  }

  SelectShape shape_;
  CacheLayout layout_;
  std::vector<int16_t> dims_;
  std::vector<Page> blocks_;
  std::vector<std::vector<std::byte*>> pointers_;
  std::vector<std::vector<std::byte>> tails_;
  std::vector<SequenceDesc> descriptors_;
  std::vector<float> query_;
  int longest_ = 0;
  int selected_capacity_ = 0;
  std::vector<int32_t> sets_;
  std::vector<int32_t> sizes_;
  StepCounters counters_;
};

// The tokens with the best of these scores, ascending.
inline std::vector<int32_t> sorted_set(const SelectPlan& plan,
                                       const reference::GroupScores& scores) {
  std::vector<int32_t> taken;
  if (!plan.is_dense()) {
    const std::vector<float> best = reference::relative_scores(scores, plan.visible());
    for (int p = plan.sinks_end; p < plan.recent_begin; ++p) taken.push_back(p);
    std::stable_sort(taken.begin(), taken.end(), [&](int32_t a, int32_t b) {
      return best[static_cast<size_t>(a - plan.first)] > best[static_cast<size_t>(b - plan.first)];
    });
    taken.resize(static_cast<size_t>(plan.need));
  }
  const int sinks_end = plan.is_dense() ? plan.end : plan.sinks_end;
  for (int p = plan.first; p < sinks_end; ++p) taken.push_back(p);
  for (int p = plan.recent_begin; p < plan.end && !plan.is_dense(); ++p) taken.push_back(p);
  std::sort(taken.begin(), taken.end());
  return taken;
}

inline SelectCase::KeyOf gaussian_keys(unsigned seed) {
  auto random = std::make_shared<std::mt19937>(seed);
  auto normal = std::make_shared<std::normal_distribution<float>>();
  return [random, normal](int, int, int, int d) {
    return (*normal)(*random) * (d % 3 == 0 ? 2.0f : 1.0f) + (d % 7 == 0 ? 40.0f : 0.0f);
  };
}
inline SelectCase::QueryOf gaussian_queries(unsigned seed) {
  auto random = std::make_shared<std::mt19937>(seed + 1000);
  auto normal = std::make_shared<std::normal_distribution<float>>();
  return [random, normal](int, int, int) { return (*normal)(*random); };
}

}  // namespace fasa
