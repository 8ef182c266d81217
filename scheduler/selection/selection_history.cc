#include "scheduler/selection/selection_history.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "scheduler/selection/token_selection.h"
#include "scheduler/selection/vector_math.h"

namespace fasa {

SelectionHistory::SelectionHistory(const StepSettings& settings)
    : settings_(settings), layers_(settings.layers.size()) {
  for (Layer& layer : layers_) layer.heads.resize(static_cast<size_t>(settings.layout.kv_heads));
}

void SelectionHistory::share(const SequenceMemory& parent, int64_t tokens,
                             const Stream& /*stream*/) {
  const auto& other = static_cast<const SelectionHistory&>(parent);
  for (size_t l = 0; l < layers_.size(); ++l) {
    layers_[l].record = other.layers_[l].record;
    for (size_t h = 0; h < layers_[l].heads.size(); ++h) {
      const Head& from = other.layers_[l].heads[h];
      layers_[l].heads[h] = {.kept = from.kept,
                             .taken = from.taken,
                             .policy = from.policy ? from.policy->clone() : nullptr};
    }
  }
  truncate(tokens);
}

void SelectionHistory::truncate(int64_t tokens) {
  const auto width = static_cast<size_t>(settings_.layout.query_heads()) *
                     static_cast<size_t>(settings_.layout.row.key_dim);
  const auto left = static_cast<size_t>(tokens);
  for (Layer& layer : layers_) {
    if (layer.record.seen.size() > left) {
      layer.record.seen.resize(left);
      layer.record.queries.resize(left * width);
    }
    for (Head& head : layer.heads) {
      if (head.taken > tokens) head = Head();  // replays the record
    }
  }
}

void SelectionHistory::record(int layer_index, const ConstTensorView& q,
                              const SequenceDesc& sequence) {
  QueryRecord& record = layer(layer_index).record;
  const auto heads = static_cast<size_t>(settings_.layout.query_heads());
  const auto dim = static_cast<size_t>(settings_.layout.row.key_dim);
  const auto end = static_cast<size_t>(sequence.end());
  record.seen.resize(end, Seen::kNothing);  // includes tokens that were only appended
  record.queries.resize(end * heads * dim);
  for (int t = 0; t < sequence.tokens; ++t) {
    const auto position = static_cast<size_t>(sequence.start + t);
    record.seen[position] = sequence.mode == StepMode::kDecode ? Seen::kDecode : Seen::kPrefill;
    float* out = record.queries.data() + position * heads * dim;
    for (size_t h = 0; h < heads; ++h) {
      const int64_t at = q.offset(sequence.first_token + t, static_cast<int64_t>(h));
      for (size_t d = 0; d < dim; ++d) {
        *out++ = load_element(q.dtype, q.data, at + static_cast<int64_t>(d));
      }
    }
  }
}

const std::vector<int32_t>& SelectionHistory::advance(const StepParams& step,
                                                      const SequenceDesc& sequence, int kv_head) {
  constexpr int kMany = 4;  // positions at which f32 keys start to pay
  Layer& worked = layer(step.attending_layer());
  Head& head = worked.heads[static_cast<size_t>(kv_head)];
  if (!head.policy) head.policy = settings_.selection->make_policy();
  KeyReader keys(step, sequence, kv_head);
  const LayerSettings& settings = settings_.in_layout(step.attending_layer());
  EvictionHead view{.record = worked.record,
                    .keys = keys,
                    .first_query_head = kv_head * settings_.layout.gqa_group,
                    .query_heads = settings_.layout.gqa_group,
                    .all_query_heads = settings_.layout.query_heads(),
                    .scale = settings_.scale,
                    .window = settings.window};
  const auto end = static_cast<int>(worked.record.seen.size());
  if (end - head.taken >= kMany) keys.keep(end);
  for (; head.taken < end; ++head.taken) take(head, view, settings, head.taken);
  return head.kept;
}

void SelectionHistory::take(Head& head, EvictionHead& view, const LayerSettings& settings,
                            int position) {
  const int first = view.first_visible(position);
  head.kept.erase(head.kept.begin(), std::lower_bound(head.kept.begin(), head.kept.end(), first));
  head.kept.push_back(position);
  const Seen seen = view.record.seen[static_cast<size_t>(position)];
  if (seen == Seen::kDecode) evict(head, view, settings, position);
  if (seen == Seen::kNothing) return;
  if (seen == Seen::kDecode) {
    head.policy->observe(view, position, head.kept);
    return;
  }
  thread_local std::vector<int32_t> all;  // prefill also attends to evicted tokens
  all.resize(static_cast<size_t>(position + 1 - first));
  std::iota(all.begin(), all.end(), first);
  head.policy->observe(view, position, all);
}

void SelectionHistory::evict(Head& head, EvictionHead& view, const LayerSettings& settings,
                             int position) {
  const CacheLayout& layout = settings_.layout;
  const int visible = position + 1 - view.first_visible(position);
  const auto budget = static_cast<size_t>(settings.budget.of(visible, settings_.budget_floor()));
  if (head.kept.size() <= budget) return;
  std::vector<float> merits(head.kept.size());
  head.policy->judge(view, position, static_cast<int>(budget), head.kept, merits);
  std::vector<size_t> order(head.kept.size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    const int32_t token = head.kept[i];
    if (token < layout.sinks || token > position - layout.recent) {
      merits[i] = std::numeric_limits<float>::infinity();
    } else if (std::isnan(merits[i])) {
      merits[i] = kNoScore;
    }
  }
  std::nth_element(
      order.begin(), order.begin() + static_cast<int64_t>(budget), order.end(),
      [&](size_t a, size_t b) { return merits[a] != merits[b] ? merits[a] > merits[b] : a < b; });
  order.resize(budget);
  std::sort(order.begin(), order.end());
  std::vector<int32_t> kept;
  kept.reserve(budget + 1);
  for (const size_t i : order) kept.push_back(head.kept[i]);
  head.kept = std::move(kept);
}

}  // namespace fasa
