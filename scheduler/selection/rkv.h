// R-KV (arXiv 2505.24133): a token is worth λ I - (1 - λ) R with λ = 0.1.
//   I  importance: attention weights of the last 8 queries over the tokens that may go, averaged
//      and max-pooled over 7 neighbours; a group's logits are joined by their maximum before the
//      softmax
//   R  redundancy: softmax over tokens of the mean cosine similarity of a token's key to all the
//      others, where for each key the newest one that it resembles (cosine > 0.5) is left out, so
//      that of many alike the newest stays
// The newest tokens, at most 32 and at most half of the budget, are always kept, like the paper's
// buffer.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "scheduler/selection/vector_math.h"
#include "scheduler/selection/windowed_policy.h"

namespace fasa {

class RkvPolicy : public WindowedPolicy {
 public:
  std::unique_ptr<EvictionPolicy> clone() const override {
    return std::make_unique<RkvPolicy>(*this);
  }

 protected:
  void find_values(EvictionHead& head, int position, std::span<const int32_t> kept,
                   std::span<float> values) override {
    constexpr float kLambda = 0.1f;
    const std::vector<float> important = importance(head, position, kept.first(values.size()));
    const std::vector<float> redundant = redundancy(head, kept);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = kLambda * important[i] - (1 - kLambda) * redundant[i];
    }
  }

 private:
  static std::vector<float> importance(EvictionHead& head, int position,
                                       std::span<const int32_t> tokens) {
    constexpr int kQueries = 8;
    std::vector<float> sums(tokens.size());
    std::vector<float> weights(tokens.size());
    const std::vector<int> queries = newest_queries(head, position, kQueries);
    for (const int query : queries) {
      for (size_t i = 0; i < tokens.size(); ++i) {
        weights[i] = kNoScore;
        if (tokens[i] > query || tokens[i] < head.first_visible(query)) continue;
        const float* key = head.keys.at(tokens[i]);
        for (int h = 0; h < head.query_heads; ++h) {
          weights[i] =
              std::max(weights[i], finite_score(dot(head.query(query, h), key, head.keys.dim())));
        }
      }
      softmax(weights, head.scale);
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i] += weights[i] / static_cast<float>(queries.size());
      }
    }
    return max_pooled(sums);
  }

  static std::vector<float> redundancy(EvictionHead& head, std::span<const int32_t> tokens) {
    constexpr float kAlike = 0.5f;
    const auto dim = static_cast<size_t>(head.keys.dim());
    const std::vector<float> keys = unit_keys(head, tokens);
    std::vector<float> sum(dim);
    for (size_t i = 0; i < keys.size(); ++i) sum[i % dim] += keys[i];
    const auto cosine = [&](const float* a, const float* b) {
      return dot(a, b, static_cast<int>(dim));
    };
    const size_t count = tokens.size();
    std::vector<float> similarity(count);
    for (size_t i = 0; i < count; ++i) {  // to all but itself
      const float* key = keys.data() + i * dim;
      similarity[i] += cosine(key, sum.data()) - cosine(key, key);
    }
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = count; j-- > 0;) {
        if (j == i) continue;
        const float alike = cosine(keys.data() + i * dim, keys.data() + j * dim);
        if (alike <= kAlike) continue;
        similarity[j] -= alike;
        break;
      }
    }
    for (float& value : similarity) value = finite_score(value / static_cast<float>(count));
    softmax(similarity, 1);
    return similarity;
  }

  static std::vector<float> unit_keys(EvictionHead& head, std::span<const int32_t> tokens) {
    std::vector<float> keys;
    keys.reserve(tokens.size() * static_cast<size_t>(head.keys.dim()));
    for (const int32_t token : tokens) {
      const float* key = head.keys.at(token);
      const float length = std::sqrt(dot(key, key, head.keys.dim()));
      for (int d = 0; d < head.keys.dim(); ++d) keys.push_back(length > 0 ? key[d] / length : 0);
    }
    return keys;
  }
};

}  // namespace fasa
