#include "runtime/llm/generation/divergence.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fasa {
namespace {

// ln Σ exp(logit); NaN or an infinity if the logits do not define a distribution.
double log_sum_exp(std::span<const float> logits) {
  const double top = double{*std::max_element(logits.begin(), logits.end())};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - top);
  return top + std::log(sum);
}

}  // namespace

double kl_divergence(std::span<const float> reference, std::span<const float> other) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double of_reference = log_sum_exp(reference);
  const double of_other = log_sum_exp(other);
  if (!std::isfinite(of_reference) || !std::isfinite(of_other)) return kInfinity;
  double sum = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = double{reference[i]} - of_reference;
    const double p = std::exp(log_p);
    if (p > 0) sum += p * (log_p - (double{other[i]} - of_other));
  }
  return std::isnan(sum) ? kInfinity : std::max(sum, 0.0);  // rounding may give less than 0
}

int32_t best_token(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

AuditCounts& AuditCounts::operator+=(const AuditCounts& more) {
  tokens += more.tokens;
  same_best += more.same_best;
  kl_sum += more.kl_sum;
  kl_max = std::max(kl_max, more.kl_max);
  return *this;
}

}  // namespace fasa
