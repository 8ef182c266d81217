// Scores of decoded steps: the loss of the token that follows, and the distance to the logits of
// full attention, if there are any.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

#include "runtime/eval/tasks/eval_task.h"

namespace fasa {

// Sums over an example's scored steps.
class StepScores {
 public:
  explicit StepScores(const EvalTarget& target) : target_(target) {}
  // The logits [vocab] of the next step, and the token that follows.
  void add(std::span<const float> logits, int32_t next);
  // Adds "nll", and with reference logits "kl" and "same_best" (against_full.h).
  void write(nlohmann::json& record) const;
  int64_t steps() const { return steps_; }

 private:
  const EvalTarget& target_;
  int64_t steps_ = 0;
  double loss_ = 0;
  double kl_ = 0;
  int64_t same_best_ = 0;
};

// -log softmax(logits)[id], in nats; logits that are NaN or all infinite give infinity.
double negative_log_likelihood(std::span<const float> logits, int32_t id);

}  // namespace fasa
