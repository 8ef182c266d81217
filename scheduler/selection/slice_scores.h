// FASA (arXiv 2602.03152) variants that the fused kernel does not have, for comparison: other group
// rules, a set per query head, candidates rescored on whole keys. Scores tokens on the slices with
// the kernel's arithmetic.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/host_rows.h"
#include "scheduler/selection/key_reader.h"
#include "scheduler/selection/token_selection.h"
#include "scheduler/selection/vector_math.h"

namespace fasa {

class SliceSelection : public ScoredSelection {
 public:
  explicit SliceSelection(const SelectionOptions& options) : options_(options) {}

  bool reads_slices() const override { return true; }
  int32_t choose(const HeadStep& step, const std::vector<int32_t>* kept,
                 int32_t* set) const override {
    const SelectPlan& plan = step.plan;
    const int candidates = static_cast<int>(
        std::min<double>(std::ceil(static_cast<double>(plan.need) * options_.rescore),
                         plan.recent_begin - plan.sinks_end));
    if (options_.rescore == 1 || plan.is_dense()) {
      return ScoredSelection::choose(step, kept, set);
    }
    const std::vector<float> coarse = score(step).combined();
    const std::vector<float> exact =
        rescored(step, best_tokens(plan, coarse, candidates)).combined();
    return write_set(plan, best_tokens(plan, exact, plan.need), set);
  }

 protected:
  TokenScores score(const HeadStep& step) const override {
    TokenScores scores(step.query_heads, step.plan.visible(), options_.rule, step.scale);
    const int group = step.params.step.layout.gqa_group;
    std::vector<float*> heads(static_cast<size_t>(group), nullptr);
    const int first_head = step.first_query_head % group;
    for (int h = 0; h < step.query_heads; ++h) {
      heads[static_cast<size_t>(first_head + h)] = scores.head(h).data();
    }
    score_slices(step.params, step.sequence, step.kv_head, step.plan.first, step.plan.end,
                 heads.data());
    return scores;
  }

 private:
  // Scores on whole keys of the candidates and of the tokens that are always selected, as these
  // determine the heads' maxima. All other tokens are excluded.
  TokenScores rescored(const HeadStep& step, const std::vector<int32_t>& candidates) const {
    const SelectPlan& plan = step.plan;
    TokenScores scores(step.query_heads, plan.visible(), options_.rule, step.scale);
    std::fill(scores.values.begin(), scores.values.end(), kNoScore);
    std::vector<int32_t> tokens(candidates.size() + static_cast<size_t>(plan.budget - plan.need));
    write_set(plan, candidates, tokens.data());
    KeyReader keys(step.params.step, step.tokens(), step.kv_head);
    for (const int32_t token : tokens) {
      const float* key = keys.at(token);
      for (int h = 0; h < step.query_heads; ++h) {
        scores.head(h)[static_cast<size_t>(token - plan.first)] =
            finite_score(dot(step.query(h), key, step.key_dim()));
      }
    }
    return scores;
  }

  SelectionOptions options_;
};

}  // namespace fasa
