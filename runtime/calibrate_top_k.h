// The k best of many scores, for calibration: sums weights over the set, or marks it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace fasa {

// Ties go to the lower index. One scratch a thread: reused over calls, grows to the longest.
// A histogram of the scores' upper bits finds the boundary, and only its bin is sorted; partial
// sorting of all scores (nth_element) was the larger part of calibration's time.
class TopKSelector {
 public:
  // `scores`: all ≤ 0 or -infinity, no NaN (scores less their maximum); they must stay until the
  // set has been read. k ≥ the count takes all.
  void select(std::span<const float> scores, int64_t k);

  double sum(std::span<const float> weights) const;  // of the selected
  void mark(std::span<uint8_t> selected) const;      // 1 for each of the selected, else 0

 private:
  static constexpr int kBinShift = 20;
  static constexpr uint32_t kBins = (0x7f800000u >> kBinShift) + 1;

  std::span<const float> scores_;
  uint32_t bin_ = 0;               // all scores of lower bins are selected
  std::vector<int32_t> boundary_;  // the selected of this bin
  std::vector<uint32_t> magnitudes_;
  std::array<uint32_t, kBins> histogram_{};
};

}  // namespace fasa
