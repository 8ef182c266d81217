#include "scheduler/selection/token_scores.h"

#include <algorithm>
#include <numeric>

#include "scheduler/selection/vector_math.h"

namespace fasa {
std::vector<float> TokenScores::combined() {
  const bool sums = rule == HeadRule::kSum;
  std::vector<float> all(static_cast<size_t>(tokens), sums ? 0.0f : kNoScore);
  for (int h = 0; h < heads(); ++h) {
    const std::span<float> scores = head(h);
    const float top = sums ? 0 : greatest(scores);
    for (size_t t = 0; t < all.size(); ++t) {
      all[t] = sums ? all[t] + scores[t] : std::max(all[t], scores[t] - top);
    }
  }
  for (float& score : all) score = finite_score(score);  // sums may overflow
  return all;
}

std::vector<int32_t> best_tokens(const SelectPlan& plan, std::span<const float> scores, int need) {
  std::vector<int32_t> tokens(static_cast<size_t>(plan.recent_begin - plan.sinks_end));
  std::iota(tokens.begin(), tokens.end(), plan.sinks_end);
  const auto score = [&](int32_t token) { return scores[static_cast<size_t>(token - plan.first)]; };
  const auto better = [&](int32_t a, int32_t b) {
    return score(a) != score(b) ? score(a) > score(b) : a < b;
  };
  const auto kept = static_cast<size_t>(std::clamp<int64_t>(need, 0, std::ssize(tokens)));
  std::nth_element(tokens.begin(), tokens.begin() + static_cast<int64_t>(kept), tokens.end(),
                   better);
  tokens.resize(kept);
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

int32_t write_set(const SelectPlan& plan, std::span<const int32_t> chosen, int32_t* set) {
  int32_t* out = set;
  for (int position = plan.first; position < plan.sinks_end; ++position) *out++ = position;
  out = std::copy(chosen.begin(), chosen.end(), out);
  for (int position = plan.recent_begin; position < plan.end; ++position) *out++ = position;
  return static_cast<int32_t>(out - set);
}

}  // namespace fasa
