// Picks the next token from logits.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace fasa {

struct Sampling {
  float temperature = 0;  // 0: greedy
  int top_k = 0;          // 0: all
  float top_p = 1;        // (0, 1]
  uint64_t seed = 0;

  // Throws UsageError naming the option that is impossible.
  void validate() const;
};

// Deterministic: equal logits and seed give equal tokens on every machine. Greedy takes the lowest
// id among equals; NaN logits are never taken while another is there.
class Sampler {
 public:
  explicit Sampler(const Sampling& sampling);
  int32_t next(std::span<const float> logits);

 private:
  Sampling sampling_;
  std::mt19937_64 random_;
  std::vector<std::pair<float, int32_t>> candidates_;
  std::vector<double> weights_;
};

}  // namespace fasa
