// Picks the next token of one sequence from logits.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "runtime/llm/generation/penalties.h"
#include "runtime/llm/generation/ranked_weights.h"
#include "runtime/llm/generation/sampling.h"

namespace fasa {

// Deterministic: equal logits and seeds give equal tokens on every machine. Greedy decoding breaks
// ties by the lowest id; NaN logits are taken only if all are NaN. One sampler per sequence, one
// thread at a time.
class Sampler {
 public:
  // Throws UsageError.
  explicit Sampler(const Sampling& sampling);
  Sampler(const Sampler&) = delete;  // its parts refer to each other
  Sampler& operator=(const Sampler&) = delete;

  void see_prompt(std::span<const int32_t> ids) { penalties_.see_prompt(ids); }
  // Logits [vocab] of the last position. The returned token counts as generated.
  int32_t next(std::span<const float> logits);

 private:
  int32_t draw(std::span<const float> logits);

  Sampling sampling_;
  Penalties penalties_;
  std::mt19937_64 random_;
  std::vector<float> changed_;  // logits after bias and penalties
  RankedWeights ranked_;
};

}  // namespace fasa
