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
  if (read_back <= seconds / 10) fixed_.measured(count, seconds);
  // Rows are read while others are computed with, so that their time may be hidden.
  const double own = seconds - fixed_seconds() - read_back;
  blend(prefill_per_token_, std::max({own, (1 - kUsefulShare) * read_back, 0.0}) / count);
}

// Seconds for a decode step and the work after it.
double PrefillBudget::max_step() const {
  if (max_step_seconds_ > 0) return max_step_seconds_;
  if (decode_seconds_ == 0) return kAutomaticMost;
  return std::max(2 * decode_seconds_, std::min(4 * decode_seconds_, kAutomaticMost));
}

double PrefillBudget::slot_seconds(bool others_decode) const {
  // A decode step runs between two slots and counts in the limit.
  return others_decode ? std::max(0.0, max_step() - decode_seconds_) : idle_seconds_;
}

double PrefillBudget::useful_share(bool others_decode) const {
  if (!others_decode) return kIdleUsefulShare;
  return max_step_seconds_ > 0 ? 0 : kUsefulShare;
}

double PrefillBudget::piece_seconds(bool others_decode) const {
  return others_decode ? slot_seconds(true) / 2 : kNone;
}

int PrefillBudget::chunk(bool others_decode, double read_back) const {
  const double slot = slot_seconds(others_decode);
  if (slot == kNone) return largest_chunk_;
  const int least = std::min(kMinChunk, largest_chunk_);
  if (prefill_per_token_ <= 0) return others_decode ? least : std::min(kFirstIdle, largest_chunk_);
  double useful = useful_share(others_decode);
  if (useful == 0 && read_back > slot / 2) useful = kUsefulShare;
  const double before = fixed_seconds() + read_back;
  const double on_tokens = std::max(slot - before, before * useful / (1 - useful));
  const double tokens = std::clamp(on_tokens / prefill_per_token_, 0.0, 1e6);
  return std::clamp(static_cast<int>(tokens), least, largest_chunk_);
}

}  // namespace fasa::serve
