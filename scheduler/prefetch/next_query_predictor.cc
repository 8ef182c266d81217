#include "scheduler/prefetch/next_query_predictor.h"

#include <algorithm>

namespace fasa {
namespace {

// An eighth of the slice, but no less than eight frequency chunks: what an exact scan would cost
// pays for the guess of eight layers.
constexpr int kPart = 8;
constexpr int kMinDims = 16;

}  // namespace

void NextQueryPredictor::predict(const Guess& guess) {
  SelectParams select = guess.select;
  select.q = source_.estimate(guess.layer, guess.ahead, guess.compute);
  select.score_dims = std::max(select.step.layout.slice.dims / kPart, kMinDims);
  select.ahead = guess.ahead;
  select.counters = nullptr;  // NaN in a guess is not counted
  device_.enqueue(select, guess.compute, guess.tag());
}

}  // namespace fasa
