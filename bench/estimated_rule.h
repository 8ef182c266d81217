// FASA by the group rule log-softmax, with each query head's sum of exponentials estimated as a
// fused kernel could: every stride-th page represents all, and tokens above the sample's bound are
// counted individually (kernels/cpu/select_head.h has both). For studies.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "scheduler/selection/slice_scores.h"

namespace fasa::bench {

class EstimatedLogSoftmax final : public SliceSelection {
 public:
  explicit EstimatedLogSoftmax(const SelectionOptions& options) : SliceSelection(options) {}

  int32_t choose(const HeadStep& step, const std::vector<int32_t>*, int32_t* set) const override {
    const SelectPlan& plan = step.plan;
    TokenScores scores = score(step);
    const int stride = stride_of(plan);
    const std::vector<float> bounds = bounds_of(plan, scores, stride);
    std::vector<float> best(static_cast<size_t>(plan.visible()), kNoScore);
    for (int h = 0; h < scores.heads(); ++h) {
      const auto head = scores.head(h);
      const float shift =
          log_sum(plan, head, step.scale, bounds[static_cast<size_t>(h)], stride) / step.scale;
      for (size_t t = 0; t < best.size(); ++t) best[t] = std::max(best[t], head[t] - shift);
    }
    return write_set(plan, best_tokens(plan, best, plan.need), set);
  }

 private:
  static int stride_of(const SelectPlan& plan) {
    const int pages = (plan.end - 1) / kPageTokens - plan.first / kPageTokens + 1;
    if (plan.visible() <= 1024 || plan.need * 4 >= plan.visible()) return 1;
    return std::max(std::clamp(pages / 16, 2, 16), pages / 128);
  }
  static bool sampled(int32_t position, int stride) {
    return position / kPageTokens % stride == stride / 2;
  }
  // Scores from which on a head's tokens are candidates: the sample's maxima less one distance for
  // all heads.
  static std::vector<float> bounds_of(const SelectPlan& plan, TokenScores& scores, int stride) {
    std::vector<float> maxima;
    for (int h = 0; h < scores.heads(); ++h) {
      float top = std::numeric_limits<float>::lowest();
      for (int32_t p = plan.first; p < plan.end; ++p) {
        if (sampled(p, stride)) top = std::max(top, scores.head(h)[index(plan, p)]);
      }
      maxima.push_back(top);
    }
    std::vector<float> relative;
    for (int32_t p = plan.sinks_end; p < plan.recent_begin; ++p) {
      if (!sampled(p, stride)) continue;
      float one = kNoScore;
      for (int h = 0; h < scores.heads(); ++h) {
        one = std::max(one, scores.head(h)[index(plan, p)] - maxima[static_cast<size_t>(h)]);
      }
      relative.push_back(one);
    }
    const double competing = plan.recent_begin - plan.sinks_end;
    const double expected = static_cast<double>(relative.size()) / competing * plan.need;
    const double factor = std::clamp(0.08 * competing / plan.need, 4.0, 12.0);
    const auto rank = std::min(
        relative.size(), static_cast<size_t>(factor * expected + 3 * std::sqrt(expected) + 4));
    if (rank == 0) return maxima;
    const auto last = relative.begin() + static_cast<int64_t>(rank) - 1;
    std::nth_element(relative.begin(), last, relative.end(), std::greater<>());
    for (float& bound : maxima) bound += *last;
    return maxima;
  }
  static size_t index(const SelectPlan& plan, int32_t position) {
    return static_cast<size_t>(position - plan.first);
  }
  static float log_sum(const SelectPlan& plan, std::span<const float> head, float scale,
                       float bound, int stride) {
    const float top = *std::max_element(head.begin(), head.end());
    double candidates = 0, rest = 0;
    int64_t in_sample = 0;
    for (int32_t p = plan.first; p < plan.end; ++p) {
      const float score = head[index(plan, p)];
      const double weight = std::exp(double{scale} * (double{score} - double{top}));
      in_sample += sampled(p, stride) ? 1 : 0;
      if (score >= bound) candidates += weight;
      if (score < bound && sampled(p, stride)) rest += weight;
    }
    const double share = static_cast<double>(in_sample) / plan.visible();
    const double sum = candidates + (share > 0 ? rest / share : 0);
    return top * scale + static_cast<float>(std::log(std::max(sum, 1.0)));
  }
};

}  // namespace fasa::bench
