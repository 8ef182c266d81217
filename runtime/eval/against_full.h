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

struct AgainstFull {
  int64_t examples = 0;
  int64_t tokens = 0;
  PairedMean kl;          // KL(full || method) of the next token's distribution, nats a token
  PairedMean same_best;   // share of tokens for which both have the same most likely token
  PairedMean perplexity;  // the method's over full's, minus 1; the mean is taken over logarithms
};

// Compares the examples that both have (by "id") and that were compared: "kl", "same_best" and
// "nll" are sums over "tokens". None if there are no such examples.
std::optional<AgainstFull> against_full(std::span<const nlohmann::json> method,
                                        std::span<const nlohmann::json> full);

}  // namespace fasa
