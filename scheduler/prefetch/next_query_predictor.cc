#include "scheduler/prefetch/next_query_predictor.h"

#include <algorithm>

namespace fasa {
namespace {

// Predictions score an eighth of the slice, at least eight frequency chunks: eight predictions cost
// as much as one exact scan.
constexpr int kPart = 8;
constexpr int kMinDims = 16;

}  // namespace

void NextQueryPredictor::predict(const PredictedSet& prediction) {
  SelectParams select = prediction.select;
  select.q = source_.estimate(prediction.layer, prediction.ahead, prediction.compute);
  select.score_dims = std::max(select.step.layout.slice.dims / kPart, kMinDims);
  select.ahead = prediction.ahead;
  select.counters = nullptr;  // NaN in a prediction is not counted
  device_.enqueue(select, prediction.compute, prediction.tag());
}

}  // namespace fasa
