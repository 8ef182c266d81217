// Predicts the token sets of later layers. A prediction decides what is fetched ahead, never what
// is attended to, so it may be anything.
#pragma once

#include "kernels/params.h"
#include "offload/operation_tag.h"
#include "runtime/base/stream_view.h"

namespace fasa {

// For layer `layer` + `ahead`, while `layer` computes. `select` names the target: its step
// parameters, budget, window, and the room that the prediction goes to; no query.
struct PredictedSet {
  int layer = 0;
  int ahead = 1;
  SelectParams select;
  StreamView compute;

  // In the time of the layer that computes.
  OperationTag tag() const { return tag_of(layer, Cause::kPrefetch); }
};

// One of the table's (predictor_table.h) says beside it, as static members, kName and kHelp (what
// it predicts), kByQueries (it is made with a QuerySource alone), kWritesSets, max_depth(layers,
// source_depth) and make(parts).
class Predictor {
 public:
  virtual ~Predictor() = default;

  // How many layers ahead; 0 = nothing is ever predicted.
  virtual int max_depth() const = 0;
  // False: predict() is not called, the prediction is what the hot rows' tables remember.
  virtual bool writes_sets() const = 0;
  // Enqueues on prediction.compute what fills prediction.select.sets and selected_sizes. Allocates
  // nothing.
  virtual void predict(const PredictedSet& prediction) = 0;
};

}  // namespace fasa
