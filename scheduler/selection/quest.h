// Quest (arXiv 2406.10774): pages of 16 tokens, each known by the least and the greatest value of
// every key dimension; a page's score is the most that any key between them could reach,
// Σ_d max(q_d min_d, q_d max_d). Whole pages by score, the last one cut where the budget ends. The
// paper selects per query head; within a group the group rule decides. Not its full attention in
// the first two layers: dense_layers does that for any selection.
#pragma once

#include <algorithm>
#include <vector>

#include "scheduler/selection/key_reader.h"
#include "scheduler/selection/token_selection.h"
#include "scheduler/selection/vector_math.h"

namespace fasa {

class QuestSelection : public ScoredSelection {
 public:
  explicit QuestSelection(const SelectionOptions& options) : rule_(options.rule) {}

 protected:
  // Tokens of a page have one score, and equals go by position: pages are taken one after the
  // other.
  TokenScores score(const HeadStep& step) const override {
    constexpr int kQuestPage = 16;
    const SelectPlan& plan = step.plan;
    TokenScores scores(step.query_heads, plan.visible(), rule_, step.scale);
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

  GroupRule rule_;
};

}  // namespace fasa
