// Scores of the visible tokens per query head, their combination to one score per token, and the
// token set.
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
  float scale = 1;            // factor of S before a softmax
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

// The `need` competing tokens (see plan) with the best scores, in ascending order; ties go to the
// lower position. `scores`: one per visible token.
std::vector<int32_t> best_tokens(const SelectPlan& plan, std::span<const float> scores, int need);

// Writes the tokens that are always selected and the `chosen` ones among those that compete.
// Returns the set's size.
int32_t write_set(const SelectPlan& plan, std::span<const int32_t> chosen, int32_t* set);

}  // namespace fasa
