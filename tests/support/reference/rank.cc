#include "tests/support/reference/rank.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace fasa::reference {

std::vector<float> chunk_scores(const std::vector<float>& base, float first, float second,
                                const float* first_keys, const float* second_keys, size_t tokens) {
  std::vector<float> scores(tokens);
  for (size_t t = 0; t < tokens; ++t) {
    const float begun = base.empty() ? 0 : base[t];
    scores[t] = begun + first * first_keys[t] + second * second_keys[t];
  }
  return scores;
}

float best_score(const std::vector<float>& scores) {
  float best = -std::numeric_limits<float>::infinity();
  for (const float score : scores) best = score > best ? score : best;
  return best;
}

std::vector<int32_t> deficits(const std::vector<std::vector<float>>& rows) {
  std::vector<int32_t> result(rows.front().size());
  for (size_t t = 0; t < result.size(); ++t) {
    float least = std::numeric_limits<float>::infinity();
    for (const std::vector<float>& row : rows) {
      const float under = std::abs(best_score(row) - row[t]);
      least = under < least ? under : least;
    }
    result[t] = std::bit_cast<int32_t>(least);
  }
  return result;
}

}  // namespace fasa::reference
