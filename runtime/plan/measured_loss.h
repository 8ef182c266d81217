// What selections lose, as measured: the one table that reports show.
#pragma once

#include <optional>
#include <string_view>

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

struct MeasuredLoss {
  AttendedTokens attended;
  double perplexity = 0;  // change against full attention of the same tokens
  int context = 0;        // tokens
  std::string_view model;
};

// The measurement of these tokens with the longest context; none: it was not measured.
std::optional<MeasuredLoss> measured_loss(const AttendedTokens& attended);

}  // namespace fasa
