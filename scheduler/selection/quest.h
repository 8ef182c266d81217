// Quest (arXiv 2406.10774): pages of 16 tokens, each described by the minimum and the maximum of
// every key dimension. A page's score is an upper bound of its keys' scores, Σ_d max(q_d min_d, q_d
// max_d). Selects whole pages by score and cuts the last one at the budget. The paper selects per
// query head; here the heads of a GQA group are joined. The paper's full attention in the
// first two layers is left to dense_layers.
#pragma once

#include <algorithm>
#include <vector>

#include "scheduler/selection/key_reader.h"
#include "scheduler/selection/token_selection.h"
#include "scheduler/selection/vector_math.h"

namespace fasa {

class QuestSelection : public ScoredSelection {
 protected:
  // All tokens of a page have the same score, and ties go by position, so pages are taken whole.
  TokenScores score(const HeadStep& step) const override {
    constexpr int kQuestPage = 16;
    const SelectPlan& plan = step.plan;
    TokenScores scores(step.query_heads, plan.visible());
    KeyReader keys(step.params.step, step.tokens(), step.kv_head);
    const auto dim = static_cast<size_t>(step.key_dim());
    std::vector<float> least(dim);
    std::vector<float> most(dim);
    for (int begin = plan.first; begin < plan.end;) {
      const int end = std::min(plan.end, (begin / kQuestPage + 1) * kQuestPage);
      std::copy_n(keys.at(begin), dim, least.begin());
      most = least;
      for (int position = begin + 1; position < end; ++position) {
        const float* key = keys.at(position);
        for (size_t d = 0; d < dim; ++d) {
          least[d] = std::min(least[d], key[d]);
          most[d] = std::max(most[d], key[d]);
        }
      }
      for (int h = 0; h < step.query_heads; ++h) {
        const float bound = finite_score(upper_bound(step.query(h), least, most));
        std::fill_n(scores.head(h).begin() + (begin - plan.first), end - begin, bound);
      }
      begin = end;
    }
    return scores;
  }

 private:
  static float upper_bound(const float* query, const std::vector<float>& least,
                           const std::vector<float>& most) {
    float sum = 0;
    for (size_t d = 0; d < least.size(); ++d) {
      sum += std::max(query[d] * least[d], query[d] * most[d]);
    }
    return sum;
  }
};

}  // namespace fasa
