// The configuration of prefetch.
#pragma once

#include <cstdint>
#include <optional>

namespace fasa {

// What is fetched ahead. kRunnersUp: the tokens ranked best behind the layer's last set, which its
// select listed. kAuto: the same.
enum class PredictorKind : uint8_t { kAuto, kNone, kRunnersUp };

struct PrefetchOptions {
  PredictorKind predictor = PredictorKind::kAuto;
  std::optional<int> depth;  // layers ahead; 0: off; empty: 1 where it pays

  bool off() const { return predictor == PredictorKind::kNone || depth == 0; }
};

// Scratch that predictions need.
struct PredictionScratch {
  int max_depth = 0;         // layers
  bool writes_sets = false;  // predictions are sets of their own, not lists of runners-up
};

}  // namespace fasa
