// Log-probabilities of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace fasa {

// Log probabilities of the model's own distribution, before bias, penalties and temperature.
struct TokenLogprobs {
  int32_t id = 0;  // the sampled token
  double logprob = 0;
  std::vector<std::pair<int32_t, double>>
      top;  // the most likely tokens, best first; ties: lower id first
};

// Logits [vocab], none +inf; NaN counts as -inf. `top`: number of most likely tokens to return.
TokenLogprobs logprobs_of(std::span<const float> logits, int32_t id, int top);

}  // namespace fasa
