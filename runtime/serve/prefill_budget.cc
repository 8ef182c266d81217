#include "runtime/serve/prefill_budget.h"

#include <algorithm>

namespace fasa::serve {
namespace {

constexpr double kNewest = 0.2;  // weight of the newest step in the running mean

void blend(double& mean, double value) {
  mean = mean == 0 ? value : (1 - kNewest) * mean + kNewest * value;
}

}  // namespace

void PrefillBudget::decoded(double seconds) { blend(decode_seconds_, seconds); }

void PrefillBudget::prefilled(int64_t tokens, double seconds, double read_back) {
  if (tokens <= 0) return;
  const auto count = static_cast<double>(tokens);
  const bool local = read_back <= seconds / 10;
  if (local && seconds / count < min_per_token_) {
    min_per_token_ = seconds / count;
    max_tokens_ = tokens;
  }
  if (local && seconds < min_seconds_) {
    min_seconds_ = seconds;
    min_tokens_ = tokens;
  }
  // Rows are read while others are computed with, so that their time may be hidden.
  const double own = seconds - fixed_seconds() - read_back;
  blend(prefill_per_token_, std::max({own, (1 - kUsefulShare) * read_back, 0.0}) / count);
}

double PrefillBudget::fixed_seconds() const {
  if (min_tokens_ >= max_tokens_) return 0;  // a line needs two different sizes
  const auto few = static_cast<double>(min_tokens_);
  const auto many = static_cast<double>(max_tokens_);
  // The intercept of the line through the two chunk sizes' times.
  return std::max(0.0, (min_seconds_ - few * min_per_token_) * many / (many - few));
}

// Seconds for a decode step and the work after it.
double PrefillBudget::max_step() const {
  if (max_step_seconds_ > 0) return max_step_seconds_;
  return decode_seconds_ > 0 ? std::min(2 * decode_seconds_, kAutomaticMost) : kAutomaticMost;
}

double PrefillBudget::piece_seconds(bool others_decode) const {
  return others_decode ? std::max(0.0, max_step() - decode_seconds_) / 2 : kNone;
}

int PrefillBudget::chunk(bool others_decode, double read_back) const {
  if (!others_decode) return largest_chunk_;
  const int least = std::min(kMinChunk, largest_chunk_);
  if (prefill_per_token_ <= 0) return least;
  // A decode step runs between two chunks and counts in the limit; the rest is for the chunk.
  const double slot = max_step() - decode_seconds_;
  double on_tokens = slot - fixed_seconds() - read_back;
  if (max_step_seconds_ <= 0 || read_back > slot / 2) {
    constexpr double kPerFixed = kUsefulShare / (1 - kUsefulShare);
    on_tokens = std::max(on_tokens, kPerFixed * (fixed_seconds() + read_back));
  }
  const double tokens = std::clamp(on_tokens / prefill_per_token_, 0.0, 1e6);
  return std::clamp(static_cast<int>(tokens), least, largest_chunk_);
}

}  // namespace fasa::serve
