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

}  // namespace fasa
