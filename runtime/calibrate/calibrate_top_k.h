// The k best of many tokens, for calibration: sums weights over the set, or marks it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/rank_bodies.h"

namespace fasa {

// Exact, ties to the lower index, by deficits (kernels/rank_body_types.h: the fewer, the
// better). Looks for a deficit that k tokens are below, by counting, from where the last search
// ended, since the candidates of a query are alike. One a thread: reused over calls.
//
// Slower: partial sorting (nth_element) of all scores; a histogram of their upper bits, whose
// increments wait for each other. No faster: to stop counting when few tokens are left in doubt and
// to sort those, since finding them takes unpredictable branches.
class TopKSelector {
 public:
  TopKSelector() : TopKSelector(cpu::rank_bodies(cpu::active_target())) {}
  explicit TopKSelector(const cpu::RankBodies& bodies) : bodies_(&bodies) {}

  // `deficits` must stay until the set has been read. k ≥ the count takes all.
  void select(std::span<const int32_t> deficits, int64_t k);

  double sum(std::span<const float> weights);    // of the selected
  void mark(std::span<uint8_t> selected) const;  // 1 for each of the selected, else 0

 private:
  // One end of the interval that contains the k-th: the number of tokens below this deficit.
  struct End {
    int64_t deficit;
    int64_t below;
    bool counted;  // or an end of all deficits
  };
  int64_t probe(const End& low, const End& high, int64_t k) const;

  const cpu::RankBodies* bodies_;
  std::span<const int32_t> deficits_;
  // All below low_ are selected and none from high_ on; these differ where the k-th has equals:
  // then so many of those at low_, by index.
  int32_t low_ = 0, high_ = 0;
  int64_t missing_ = 0;
  std::vector<int32_t> equals_;
  int64_t start_ = 0;   // where the last search ended
  double density_ = 0;  // tokens per unit of deficit there; 0 = unknown
};

}  // namespace fasa
