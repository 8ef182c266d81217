// The distance of two predictions.
#pragma once

#include <cstdint>
#include <span>

namespace fasa {

// KL(reference || other) of the distributions of two logit vectors, in nats. Not negative; infinite
// if either has NaN or no finite value, or if `other` gives probability 0 where the reference does
// not.
double kl_divergence(std::span<const float> reference, std::span<const float> other);

// The token with the greatest logit; the first of equals.
int32_t best_token(std::span<const float> logits);

// Predictions that were compared with those of full attention.
struct AuditCounts {
  int64_t tokens = 0;     // compared
  int64_t same_best = 0;  // of them, those whose best token is the same
  double kl_sum = 0;      // KL(full || selected), in nats
  double kl_max = 0;
  AuditCounts& operator+=(const AuditCounts& more);
  double mean_kl() const { return tokens == 0 ? 0 : kl_sum / static_cast<double>(tokens); }
};

}  // namespace fasa
