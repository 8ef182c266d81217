// Predicts the token sets of later layers. A prediction decides only what is fetched ahead, never
// what is attended to: a wrong one costs time, not accuracy.
#pragma once

#include "kernels/params.h"
#include "offload/operation_tag.h"
#include "runtime/base/stream_view.h"

namespace fasa {

// A prediction for layer `layer` + `ahead`, made while `layer` computes. `select` describes the
// target: step parameters, budget, window and the output arrays; no query.
struct PredictedSet {
  int layer = 0;
  int ahead = 1;
  SelectParams select;
  StreamView compute;

  // The work is attributed to the layer that computes.
  OperationTag tag() const { return tag_of(layer, Cause::kPrefetch); }
};

// A caller's own predictor, used instead of the lists of runners-up.
class Predictor {
 public:
  virtual ~Predictor() = default;

  // Maximum number of layers ahead; 0: no predictions.
  virtual int max_depth() const = 0;
  // Enqueues on prediction.compute the work that fills prediction.select.sets and selected_sizes.
  // Does not allocate.
  virtual void predict(const PredictedSet& prediction) = 0;
};

}  // namespace fasa
