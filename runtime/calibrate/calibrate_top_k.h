// Selects the k best of many tokens for calibration; sums weights over the set, or marks it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/rank_bodies.h"

namespace fasa {

// Exact; ties go to the lower index. Ranks by deficits (kernels/rank_body_types.h; lower is
// better). Searches by counting for a deficit with k tokens below it, starting from the last
// result, since the candidates of a query are similar. One per thread, reused. Measured
// alternatives: nth_element over all scores and a histogram of their upper bits (whose increments
// wait for each other) are slower; stopping the search early and sorting the tokens in doubt is no
// faster, since finding them takes unpredictable branches.
class TopKSelector {
 public:
  TopKSelector() : TopKSelector(cpu::rank_bodies(cpu::active_target())) {}
  explicit TopKSelector(const cpu::RankBodies& bodies) : bodies_(&bodies) {}

  // `deficits` must stay valid until the set has been read. If k ≥ the count, all are selected.
  void select(std::span<const int32_t> deficits, int64_t k);

  double sum(std::span<const float> weights);    // over the selected tokens
  void mark(std::span<uint8_t> selected) const;  // 1 for each selected token, else 0

 private:
  // One end of the interval that contains the k-th deficit: the number of tokens below it.
  struct End {
    int64_t deficit;
    int64_t below;
    bool counted;  // false: an end of the whole range
  };
  int64_t probe(const End& low, const End& high, int64_t k) const;

  const cpu::RankBodies* bodies_;
  std::span<const int32_t> deficits_;
  // Selected: all tokens with deficits below low_, none from high_ on. The two differ if deficits
  // are tied at the k-th: then the tokens at low_ with the lowest indexes fill up the set.
  int32_t low_ = 0, high_ = 0;
  int64_t missing_ = 0;
  std::vector<int32_t> equals_;
  int64_t start_ = 0;   // result of the last search
  double density_ = 0;  // tokens per unit of deficit there; 0 = unknown
};

}  // namespace fasa
