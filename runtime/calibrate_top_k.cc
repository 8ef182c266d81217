#include "runtime/calibrate_top_k.h"

#include <algorithm>
#include <bit>

namespace fasa {
namespace {

// Scores are ≤ 0: the better, the smaller the bits without the sign.
uint32_t magnitude(float score) { return std::bit_cast<uint32_t>(score) & 0x7fffffffu; }

}  // namespace

void TopKSelector::select(std::span<const float> scores, int64_t k) {
  scores_ = scores;
  boundary_.clear();
  bin_ = kBins;
  k = std::max<int64_t>(k, 0);
  if (k >= static_cast<int64_t>(scores.size())) return;
  histogram_.fill(0);
  for (const float score : scores) ++histogram_[magnitude(score) >> kBinShift];
  int64_t left = k;  // some bin is reached: fewer are wanted than there are
  for (bin_ = 0; int64_t{histogram_[bin_]} <= left; ++bin_) left -= histogram_[bin_];
  if (left == 0) return;
  magnitudes_.clear();
  for (size_t i = 0; i < scores.size(); ++i) {
    const uint32_t bits = magnitude(scores[i]);
    if (bits >> kBinShift != bin_) continue;
    boundary_.push_back(static_cast<int32_t>(i));
    magnitudes_.push_back(bits);
  }
  std::nth_element(magnitudes_.begin(), magnitudes_.begin() + (left - 1), magnitudes_.end());
  const uint32_t last = magnitudes_[static_cast<size_t>(left - 1)];
  // The lower part of nth_element holds all better ones; what is left of k goes to equals in order.
  int64_t equals = std::count(magnitudes_.begin(), magnitudes_.begin() + left, last);
  std::erase_if(boundary_, [&](int32_t i) {
    const uint32_t bits = magnitude(scores[static_cast<size_t>(i)]);
    return bits > last || (bits == last && equals-- <= 0);
  });
}

double TopKSelector::sum(std::span<const float> weights) const {
  // Sixteen sums side by side: the compiler may not reorder one sum of floats into a vector.
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> sums{};
  const uint32_t limit = bin_ << kBinShift;
  const size_t count = scores_.size();
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += magnitude(scores_[i + lane]) < limit ? weights[i + lane] : 0.0f;
    }
  }
  double total = 0;
  for (; i < count; ++i) total += magnitude(scores_[i]) < limit ? double{weights[i]} : 0.0;
  for (const float sum : sums) total += double{sum};
  for (const int32_t index : boundary_) total += double{weights[static_cast<size_t>(index)]};
  return total;
}

void TopKSelector::mark(std::span<uint8_t> selected) const {
  const uint32_t limit = bin_ << kBinShift;
  for (size_t i = 0; i < scores_.size(); ++i) {
    selected[i] = magnitude(scores_[i]) < limit ? 1 : 0;
  }
  for (const int32_t index : boundary_) selected[static_cast<size_t>(index)] = 1;
}

}  // namespace fasa
