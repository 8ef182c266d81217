#include "scheduler/selection/token_scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "scheduler/selection/vector_math.h"

namespace fasa {
namespace {

bool sums(GroupRule rule) { return rule == GroupRule::kSoftmaxSum || rule == GroupRule::kRawSum; }

// Makes a head's scores comparable with those of the other heads.
void make_comparable(std::span<float> scores, GroupRule rule, float scale) {
  switch (rule) {
    case GroupRule::kRawMax:
    case GroupRule::kRawSum:
      return;
    case GroupRule::kSoftmaxSum:
      softmax(scores, scale);
      return;
    case GroupRule::kMaxNormalised:
    case GroupRule::kLogSoftmaxMax:
      break;
  }
  const float top = greatest(scores);
  for (float& score : scores) score -= top;
  if (rule == GroupRule::kMaxNormalised) return;
  float sum = 0;
  for (const float score : scores) sum += std::exp(score * scale);
  if (sum == 0) return;  // every score is -inf
  for (float& score : scores) score = score * scale - std::log(sum);
}

}  // namespace

std::vector<float> TokenScores::combined() {
  std::vector<float> all(static_cast<size_t>(tokens), sums(rule) ? 0.0f : kNoScore);
  for (int h = 0; h < heads(); ++h) {
    const std::span<float> scores = head(h);
    make_comparable(scores, rule, scale);
    for (size_t t = 0; t < all.size(); ++t) {
      all[t] = sums(rule) ? all[t] + scores[t] : std::max(all[t], scores[t]);
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
