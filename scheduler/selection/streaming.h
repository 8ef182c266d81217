// StreamingLLM (arXiv 2309.17453): the first tokens and the newest ones, independent of the query
// and the head. Keeps eight first tokens, as in FASA's paper (arXiv 2602.03152), or selection.sinks
// if that is more. Keys keep their positions.
#pragma once

#include "scheduler/selection/token_selection.h"

namespace fasa {

class StreamingSelection : public ScoredSelection {
 protected:
  TokenScores score(const HeadStep& step) const override {
    constexpr int kSinks = 8;
    TokenScores scores(1, step.plan.visible());
    for (int t = 0; t < scores.tokens; ++t) {
      const int position = step.plan.first + t;
      scores.values[static_cast<size_t>(t)] =
          position < kSinks ? static_cast<float>(step.plan.end) : static_cast<float>(position);
    }
    return scores;
  }
};

}  // namespace fasa
