// Scores of the visible tokens per query head, their combination to one score per token, and the
// token set.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/select_plan.h"

namespace fasa {

// How the scores S of a KV head's query heads become one per token.
enum class HeadRule : uint8_t {
  kMax,  // max over heads of S - max S, the kernels' rule
  kSum,  // sum over heads of S
};

struct TokenScores {
  int tokens = 0;
  HeadRule rule = HeadRule::kMax;
  std::vector<float> values;  // [heads][tokens], finite or -inf

  TokenScores(int heads, int token_count, HeadRule head_rule = HeadRule::kMax)
      : tokens(token_count),
        rule(head_rule),
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
