// Compares a method's predictions with those of full attention on the same examples.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "runtime/eval/interval.h"

namespace fasa {

// A mean over examples, each compared with itself under full attention.
struct PairedMean {
  double value = 0;
  Interval interval;         // 95 %
  double low = 0, high = 0;  // of the examples
};

// The share of full attention's points, a point for each right answer, that a method keeps.
struct Retained {
  double value = 0;
  Interval interval;  // 95 %, given full attention's answers
  double full = 0;    // its points
  double asked = 0;   // points that could be had
};

struct AgainstFull {
  int64_t examples = 0;
  int64_t tokens = 0;     // whose distributions were compared; 0: none, and no means
  PairedMean kl;          // KL(full || method) of the next token's distribution, nats a token
  PairedMean same_best;   // share of tokens for which both have the same most likely token
  PairedMean perplexity;  // the method's over full's, minus 1; the mean is taken over logarithms
  std::optional<Retained> retained;  // of answers; none if full attention has no points
};

// Compares the examples that both have (by "id"). "kl", "same_best" and "nll" are sums over
// "scored_tokens", or "tokens" if there are no such; points are each question's "score", or a
// hundredth of the record's. None if nothing can be compared.
std::optional<AgainstFull> against_full(std::span<const nlohmann::json> method,
                                        std::span<const nlohmann::json> full);

}  // namespace fasa
