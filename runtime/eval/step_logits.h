// Logits of one example's scored steps, stored to compare other methods with them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fasa {

class StepLogits {
 public:
  // Limit of stored logits: 2 GiB.
  static constexpr int64_t kMaxBytes = int64_t{2} << 30;

  void clear() { logits_.clear(); }
  void add(std::span<const float> logits) {
    width_ = logits.size();
    logits_.insert(logits_.end(), logits.begin(), logits.end());
  }
  size_t steps() const { return width_ == 0 ? 0 : logits_.size() / width_; }
  std::span<const float> at(size_t step) const {
    return std::span(logits_).subspan(step * width_, width_);
  }

 private:
  std::vector<float> logits_;  // [steps][width]
  size_t width_ = 0;
};

}  // namespace fasa
