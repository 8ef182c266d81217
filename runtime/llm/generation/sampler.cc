#include "runtime/llm/generation/sampler.h"

#include <algorithm>

namespace fasa {
namespace {

int32_t greedy(std::span<const float> logits) {
  const auto found = std::find(logits.begin(), logits.end(), best_logit(logits));
  return found == logits.end() ? 0 : static_cast<int32_t>(found - logits.begin());
}

}  // namespace

Sampler::Sampler(const Sampling& sampling)
    : sampling_(sampling), penalties_(sampling_), random_(sampling.seed) {
  sampling_.validate();
}

int32_t Sampler::next(std::span<const float> logits) {
  if (penalties_.any()) {
    changed_.assign(logits.begin(), logits.end());
    penalties_.apply(changed_);
    logits = changed_;
  }
  const int32_t token = sampling_.temperature == 0 ? greedy(logits) : draw(logits);
  if (penalties_.any()) penalties_.see_generated(token);
  return token;
}

int32_t Sampler::draw(std::span<const float> logits) {
  if (!ranked_.rank(logits, sampling_.temperature)) return greedy(logits);
  // Each cut keeps the best tokens, so that the narrowest one has the least mass.
  double kept = ranked_.total();
  if (sampling_.top_k > 0) kept = ranked_.mass_of_best(static_cast<size_t>(sampling_.top_k));
  if (sampling_.top_p < 1) {
    kept = std::min(kept, ranked_.reaching(sampling_.top_p * kept).mass);
  }
  if (sampling_.min_p > 0) kept = std::min(kept, ranked_.mass_from(sampling_.min_p));
  // 53 random bits; std::uniform_real_distribution may differ between libraries.
  return ranked_.above(static_cast<double>(random_() >> 11) * 0x1p-53 * kept).id;
}

}  // namespace fasa
