#include "scheduler/selection/token_selection.h"

#include <algorithm>

namespace fasa {

int32_t ScoredSelection::choose(const HeadStep& step, const std::vector<int32_t>*,
                                int32_t* set) const {
  const std::vector<float> scores = score(step).combined();
  return write_set(step.plan, best_tokens(step.plan, scores, step.plan.need), set);
}

int32_t EvictingSelection::choose(const HeadStep&, const std::vector<int32_t>* kept,
                                  int32_t* set) const {
  std::copy(kept->begin(), kept->end(), set);
  return static_cast<int32_t>(kept->size());
}

}  // namespace fasa
