#include "runtime/plan/loss_law.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace fasa {
namespace {

// KL = at_sixteenth * (share / 16) ^ power, where share is the context over the tokens attended to:
// over rows alone if all others are attended to by codes.
struct LossLaw {
  bool all_others;
  SliceDType codes;
  double at_sixteenth, power;
  double min_share, max_share;  // measured
};

// docs/results/eval.md, "Loss against length": a fit within a factor of 1.8 of every measurement.
constexpr std::array kLaws{
    LossLaw{true, SliceDType::kInt2, 3.27e-4, 1.50, 4, 256},
    LossLaw{true, SliceDType::kInt4, 3.68e-5, 0.66, 8, 256},
    LossLaw{false, SliceDType::kInt2, 7.22e-3, 1.20, 8, 128},
};
constexpr int64_t kMinTokens = 8192, kMaxTokens = 32768;  // measured

}  // namespace

std::optional<PredictedLoss> predicted_loss(const AttendedTokens& attended, int64_t tokens) {
  const int exact = attended.rows + (attended.all_others ? 0 : attended.low_bit_tokens);
  if (exact >= tokens) return PredictedLoss{};
  const auto law = std::find_if(kLaws.begin(), kLaws.end(), [&](const LossLaw& one) {
    return one.all_others == attended.all_others && one.codes == attended.codes;
  });
  if (law == kLaws.end() || exact < 1) return std::nullopt;
  const double share = static_cast<double>(tokens) / exact;
  const bool measured = kMinTokens <= tokens && tokens <= kMaxTokens && law->min_share <= share &&
                        share <= law->max_share;
  return PredictedLoss{law->at_sixteenth * std::pow(share / 16, law->power), !measured};
}

}  // namespace fasa
