#include "runtime/llm/generation/sampling.h"

#include <fmt/format.h>

#include <cmath>

#include "runtime/base/error.h"

namespace fasa {
namespace {

void require(bool possible, const char* option, double value, const char* allowed) {
  if (!possible) throw UsageError(fmt::format("{} = {}; allowed: {}", option, value, allowed));
}

}  // namespace

void Sampling::validate() const {
  require(temperature >= 0 && std::isfinite(temperature), "temperature", temperature,
          "0 (greedy) or more");
  require(top_k >= 0, "top_k", top_k, "0 (all) or more");
  require(top_p > 0 && top_p <= 1, "top_p", top_p, "above 0, up to 1");
  require(min_p >= 0 && min_p <= 1, "min_p", min_p, "0 to 1");
  require(repetition_penalty > 0 && std::isfinite(repetition_penalty), "repetition_penalty",
          repetition_penalty, "above 0 (1 = no penalty)");
  require(repetition_window >= 0, "repetition_window", repetition_window, "0 (all) or more");
  constexpr float kLargest = 100;
  require(std::abs(presence_penalty) <= kLargest, "presence_penalty", presence_penalty,
          "-100 to 100");
  require(std::abs(frequency_penalty) <= kLargest, "frequency_penalty", frequency_penalty,
          "-100 to 100");
  for (const auto& [id, bias] : logit_bias) {
    require(id >= 0, "logit_bias of id", id, "token ids of the vocabulary");
    // Minus infinity forbids a token.
    require(bias <= 1000 && !std::isnan(bias), "logit_bias", bias, "up to 1000, or -inf");
  }
}

}  // namespace fasa
