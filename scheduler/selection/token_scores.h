// Scores of the visible tokens, per query head of a set's head, and how they become one score per
// token and a set.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/select_plan.h"
#include "scheduler/selection/selection_options.h"

namespace fasa {

struct TokenScores {
  int tokens = 0;
  GroupRule rule = GroupRule::kMaxNormalised;
  float scale = 1;            // of S before a softmax
  std::vector<float> values;  // [heads][tokens], finite or -inf

  TokenScores(int heads, int token_count, GroupRule group_rule, float score_scale)
      : tokens(token_count),
        rule(group_rule),
        scale(score_scale),
        values(static_cast<size_t>(heads) * static_cast<size_t>(token_count)) {}

  std::span<float> head(int index) {
    return std::span(values).subspan(static_cast<size_t>(index) * static_cast<size_t>(tokens),
                                     static_cast<size_t>(tokens));
  }
  int heads() const { return tokens == 0 ? 0 : static_cast<int>(values.size()) / tokens; }
  // One score per token, [tokens].
  std::vector<float> combined();
};

// The `need` tokens of those that compete (plan) with the best scores, ties to the lower position:
// ascending positions. `scores`: of the visible tokens.
std::vector<int32_t> best_tokens(const SelectPlan& plan, std::span<const float> scores, int need);

// The set: what always is in it, and `chosen` of those that compete. Returns its size.
int32_t write_set(const SelectPlan& plan, std::span<const int32_t> chosen, int32_t* set);

}  // namespace fasa
