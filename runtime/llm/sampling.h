// What a sampler may do to logits before it takes a token.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace fasa {

// In the order in which they are applied, which is transformers': bias, penalties, temperature,
// top-k, top-p, min-p. Defaults change nothing: greedy decoding.
struct Sampling {
  float temperature = 0;  // 0: greedy, the best after bias and penalties
  int top_k = 0;          // 0: all
  float top_p = 1;        // (0, 1]: the fewest tokens with so much of what top_k left
  float min_p = 0;        // [0, 1]: those with so much of the best one's probability
  // Logits of tokens that prompt or answer hold: divided by it where positive, else multiplied.
  float repetition_penalty = 1;
  float presence_penalty = 0;   // taken from logits of tokens that the answer holds
  float frequency_penalty = 0;  // the same, for each time
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // id, what its logit is raised by
  uint64_t seed = 0;

  // Throws UsageError naming the option that is impossible.
  void validate() const;
};

}  // namespace fasa
