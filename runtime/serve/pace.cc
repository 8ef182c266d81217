#include "runtime/serve/pace.h"

#include <algorithm>

namespace fasa::serve {
namespace {

constexpr double kNewest = 0.2;  // the newest step's part of a mean

void blend(double& mean, double value) {
  mean = mean == 0 ? value : (1 - kNewest) * mean + kNewest * value;
}

}  // namespace

void Pace::decoded(double seconds) { blend(decode_seconds_, seconds); }

void Pace::prefilled(int64_t tokens, double seconds) {
  if (tokens > 0) blend(prefill_per_token_, seconds / static_cast<double>(tokens));
}

int Pace::chunk(bool others_decode) const {
  if (!others_decode) return largest_chunk_;
  const double most = max_step_seconds_ > 0 ? max_step_seconds_
                      : decode_seconds_ > 0 ? std::min(2 * decode_seconds_, kAutomaticMost)
                                            : kAutomaticMost;
  // A decode step comes between two chunks: what it leaves of the time is the chunk's.
  const double left = most - decode_seconds_;
  if (prefill_per_token_ <= 0 || left <= 0) return std::min(kLeastChunk, largest_chunk_);
  const double tokens = left / prefill_per_token_;
  return std::clamp(static_cast<int>(std::min(tokens, 1e6)), std::min(kLeastChunk, largest_chunk_),
                    largest_chunk_);
}

}  // namespace fasa::serve
