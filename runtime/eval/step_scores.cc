#include "runtime/eval/step_scores.h"
#include "runtime/eval/step_logits.h"
#include "runtime/llm/generation/divergence.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fasa {

void StepScores::add(std::span<const float> logits, int32_t next) {
  loss_ += negative_log_likelihood(logits, next);
  if (target_.keep != nullptr) target_.keep->add(logits);
  if (target_.against != nullptr) {
    const std::span<const float> reference = target_.against->at(static_cast<size_t>(steps_));
    kl_ += kl_divergence(reference, logits);
    same_best_ += best_token(reference) == best_token(logits) ? 1 : 0;
  }
  ++steps_;
}

void StepScores::write(nlohmann::json& record) const {
  record["nll"] = loss_;
  if (target_.against == nullptr) return;
  record["kl"] = kl_;
  record["same_best"] = same_best_;
}

double negative_log_likelihood(std::span<const float> logits, int32_t id) {
  const double top = double{*std::max_element(logits.begin(), logits.end())};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - top);
  const double loss = std::log(sum) - (double{logits[static_cast<size_t>(id)]} - top);
  return std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss;
}

}  // namespace fasa
