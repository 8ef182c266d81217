// The configuration of prefetch.
#pragma once

#include <cstdint>
#include <optional>

namespace fasa {

// Rows of prefetch/predictor_table.h; only those that code refers to have a name here.
enum class PredictorKind : uint8_t { kAuto, kNone, kRunnersUp, kNextQuery };

struct PrefetchOptions {
  PredictorKind predictor = PredictorKind::kAuto;
  std::optional<int> depth;  // layers ahead; 0: off; empty: from measured times

  bool off() const { return predictor == PredictorKind::kNone || depth == 0; }
};

// Scratch that predictions need.
struct PredictionScratch {
  int max_depth = 0;         // layers
  bool writes_sets = false;  // predictions are sets of their own, not lists of runners-up
};

}  // namespace fasa
