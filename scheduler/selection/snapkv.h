// SnapKV (arXiv 2404.14469): the last 32 queries vote with their attention weights, votes are
// max-pooled over 7 neighbouring tokens, and the tokens with the most votes are kept beside the
// window itself (at most half of the budget). As in FASA's paper (arXiv 2602.03152), the vote is
// repeated during generation, among the tokens still cached, each time a quarter of the window has
// passed. The paper votes per head; here the votes of a GQA group are added.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "scheduler/selection/windowed_policy.h"

namespace fasa {

class SnapKvPolicy : public WindowedPolicy {
 public:
  std::unique_ptr<EvictionPolicy> clone() const override {
    return std::make_unique<SnapKvPolicy>(*this);
  }

 protected:
  void find_values(EvictionHead& head, int position, std::span<const int32_t> kept,
                   std::span<float> values) override {
    constexpr int kQueries = 32;
    std::vector<float> weights(kept.size());
    for (const int query : newest_queries(head, position, kQueries)) {
      const auto [begin, count] = seen_by(head, query, kept);
      for (int h = 0; h < head.query_heads; ++h) {
        attention_weights(head, head.query(query, h), kept.subspan(begin, count),
                          std::span(weights).first(count));
        for (size_t i = begin; i < std::min(begin + count, values.size()); ++i) {
          values[i] += weights[i - begin];
        }
      }
    }
    const std::vector<float> pooled = max_pooled(values);
    std::copy(pooled.begin(), pooled.end(), values.begin());
  }

 private:
  // The range of `kept` that the queries of a position see: first index and count.
  static std::pair<size_t, size_t> seen_by(const EvictionHead& head, int query,
                                           std::span<const int32_t> kept) {
    const auto first = std::lower_bound(kept.begin(), kept.end(), head.first_visible(query));
    const auto end = std::upper_bound(first, kept.end(), query);
    return {static_cast<size_t>(first - kept.begin()), static_cast<size_t>(end - first)};
  }
};

}  // namespace fasa
