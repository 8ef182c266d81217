// Common part of SnapKV and R-KV. The newest tokens, the window, are always kept. The others have a
// value, recomputed from the newest queries each time a quarter of the window has passed. Tokens
// that were in the window at that time have no value yet and stay until the next time.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "scheduler/selection/eviction.h"

namespace fasa {

class WindowedPolicy : public EvictionPolicy {
 public:
  void judge(EvictionHead& head, int position, int budget, std::span<const int32_t> kept,
             std::span<float> merits) override {
    constexpr int kWindow = 32;
    const int window = protected_tokens(kWindow, budget);
    if (valued_at_ < 0 || position - valued_at_ >= std::max(1, window / 4)) {
      const auto older = static_cast<size_t>(
          std::upper_bound(kept.begin(), kept.end(), position - window) - kept.begin());
      values_.assign(static_cast<size_t>(position) + 1, 0.0f);
      found_.assign(older, 0.0f);
      find_values(head, position, kept, found_);
      for (size_t i = 0; i < older; ++i) values_[static_cast<size_t>(kept[i])] = found_[i];
      valued_at_ = position;
      window_begin_ = position - window + 1;
    }
    for (size_t i = 0; i < kept.size(); ++i) {
      merits[i] = kept[i] < window_begin_ ? values_[static_cast<size_t>(kept[i])]
                                          : std::numeric_limits<float>::infinity();
    }
  }

 protected:
  // Values of the first tokens of `kept`, those older than the window. `position` is the newest
  // token; its queries are unknown.
  virtual void find_values(EvictionHead& head, int position, std::span<const int32_t> kept,
                           std::span<float> values) = 0;

  // The newest `most` positions before `position` that had queries, newest first.
  static std::vector<int> newest_queries(const EvictionHead& head, int position, int most) {
    std::vector<int> found;
    for (int p = position - 1; p >= 0 && static_cast<int>(found.size()) < most; --p) {
      if (head.observed(p)) found.push_back(p);
    }
    return found;
  }

  // Replaces each value by the maximum of the seven around it.
  static std::vector<float> max_pooled(std::span<const float> values) {
    constexpr size_t kRadius = 3;
    std::vector<float> pooled(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t begin = i - std::min(i, kRadius);
      const size_t end = std::min(values.size(), i + kRadius + 1);
      pooled[i] = *std::max_element(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                    values.begin() + static_cast<std::ptrdiff_t>(end));
    }
    return pooled;
  }

 private:
  int valued_at_ = -1;
  int window_begin_ = 0;       // at the last computation of values
  std::vector<float> values_;  // by position
  std::vector<float> found_;
};

}  // namespace fasa
