// Who guesses the token sets of later layers. A guess decides what is fetched ahead, never what is
// attended to, so it may be anything.
#pragma once

#include "kernels/params.h"
#include "offload/operation_tag.h"
#include "runtime/base/stream_view.h"

namespace fasa {

// For layer `layer` + `ahead`, while `layer` computes. `select` names the target: its step
// parameters, budget, window, and the room that the guess goes to; no query.
struct Guess {
  int layer = 0;
  int ahead = 1;
  SelectParams select;
  StreamView compute;

  // In the time of the layer that computes.
  OperationTag tag() const { return tag_of(layer, Cause::kSpeculation); }
};

class Predictor {
 public:
  virtual ~Predictor() = default;

  // How many layers ahead; 0 = nothing is ever guessed.
  virtual int max_ahead() const = 0;
  // False: predict() is not called, the guess is what the hot rows' tables remember.
  virtual bool writes_sets() const = 0;
  // Enqueues on guess.compute what fills guess.select.sets and set_sizes. Allocates nothing.
  virtual void predict(const Guess& guess) = 0;
};

// Nothing is guessed.
class NonePredictor final : public Predictor {
 public:
  int max_ahead() const override { return 0; }
  bool writes_sets() const override { return false; }
  void predict(const Guess&) override {}
};

// The last step's set of the same layer. The hot rows still hold it, however they are replaced:
// what is left to fetch is what they lost when their table was distrusted (after a truncation or an
// aborted step), and that the table remembers by itself.
class PreviousStepPredictor final : public Predictor {
 public:
  explicit PreviousStepPredictor(int layers) : max_ahead_(layers - 1) {}
  int max_ahead() const override { return max_ahead_; }
  bool writes_sets() const override { return false; }
  void predict(const Guess&) override {}

 private:
  int max_ahead_;
};

}  // namespace fasa
