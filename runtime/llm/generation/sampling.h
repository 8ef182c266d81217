// Settings that change logits before a token is sampled.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace fasa {

// Applied in transformers' order: bias, penalties, temperature, top-k, top-p, min-p. The defaults
// change nothing: greedy decoding.
struct Sampling {
  float temperature = 0;  // 0: greedy, the best after bias and penalties
  int top_k = 0;          // 0: all
  float top_p = 1;        // (0, 1]: keep the fewest tokens with this share of the probability
  float min_p = 0;  // [0, 1]: keep tokens with at least this share of the best token's probability
  // For tokens in the prompt or answer: divides positive logits, multiplies negative ones.
  float repetition_penalty = 1;
  int repetition_window = 0;    // the last tokens that this counts; 0: all
  float presence_penalty = 0;   // subtracted from logits of tokens in the answer
  float frequency_penalty = 0;  // subtracted once per occurrence in the answer
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // id, amount added to its logit
  uint64_t seed = 0;

  // Throws UsageError naming the invalid option.
  void validate() const;
};

}  // namespace fasa
