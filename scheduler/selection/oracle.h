// Selects by the true scores: whole keys, scored by every query head of the GQA group, joined as
// the kernels do. The upper bound of selection by keys alone (FASA, arXiv 2602.03152,
// "oracle").
#pragma once

#include "scheduler/selection/key_reader.h"
#include "scheduler/selection/token_selection.h"
#include "scheduler/selection/vector_math.h"

namespace fasa {

class OracleSelection : public ScoredSelection {
 protected:
  TokenScores score(const HeadStep& step) const override {
    TokenScores scores(step.query_heads, step.plan.visible());
    KeyReader keys(step.params.step, step.tokens(), step.kv_head);
    for (int t = 0; t < scores.tokens; ++t) {
      const float* key = keys.at(step.plan.first + t);
      for (int h = 0; h < step.query_heads; ++h) {
        scores.head(h)[static_cast<size_t>(t)] =
            finite_score(dot(step.query(h), key, step.key_dim()));
      }
    }
    return scores;
  }
};

}  // namespace fasa
