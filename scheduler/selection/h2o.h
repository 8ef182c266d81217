// H2O (arXiv 2306.14048): half of the budget goes to the newest tokens, half to the heavy hitters,
// the tokens with the greatest attention weight summed over all queries since the first token of
// the prompt. The paper works per head; here the weights of a GQA group are summed.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "scheduler/selection/eviction.h"

namespace fasa {

class H2oPolicy : public EvictionPolicy {
 public:
  std::unique_ptr<EvictionPolicy> clone() const override {
    return std::make_unique<H2oPolicy>(*this);
  }
  void observe(EvictionHead& head, int position, std::span<const int32_t> tokens) override {
    if (weights_.size() <= static_cast<size_t>(position)) {
      weights_.resize(static_cast<size_t>(position) + 1);
    }
    step_.resize(tokens.size());
    for (int h = 0; h < head.query_heads; ++h) {
      attention_weights(head, head.query(position, h), tokens, step_);
      for (size_t i = 0; i < tokens.size(); ++i) {
        weights_[static_cast<size_t>(tokens[i])] += step_[i];
      }
    }
  }
  void judge(EvictionHead&, int, int budget, std::span<const int32_t> kept,
             std::span<float> merits) override {
    const auto newest = static_cast<size_t>(protected_tokens(budget, budget));
    for (size_t i = 0; i < kept.size(); ++i) {
      const auto token = static_cast<size_t>(kept[i]);
      merits[i] = token < weights_.size() ? weights_[token] : 0;
      if (i + newest >= kept.size()) merits[i] = std::numeric_limits<float>::infinity();
    }
  }

 private:
  std::vector<float> weights_;  // by position
  std::vector<float> step_;
};

}  // namespace fasa
