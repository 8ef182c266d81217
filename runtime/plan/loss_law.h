// What selections lose: a law fitted to measurements, which reports show.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/layout.h"

namespace fasa {

// What a step attends to.
struct AttendedTokens {
  int rows = 0;             // exactly
  bool all_others = false;  // by codes
  int low_bit_tokens = 0;   // else so many others by codes
  SliceDType codes = SliceDType::kInt2;

  bool operator==(const AttendedTokens&) const = default;
};

struct PredictedLoss {
  double kl = 0;              // from full attention's next token, nats
  bool extrapolated = false;  // beyond the lengths or shares that were measured
};

// The loss behind `tokens` tokens; none for codes that were not measured.
std::optional<PredictedLoss> predicted_loss(const AttendedTokens& attended, int64_t tokens);

}  // namespace fasa
