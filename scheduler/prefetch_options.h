// What is fetched before it is asked for, as the configuration has it.
#pragma once

#include <cstdint>
#include <optional>

namespace fasa {

// Of the predictors that prefetch/predictor_table.h lists; named are those that code asks for.
enum class PredictorKind : uint8_t { kAuto, kNone, kPreviousStep, kNextQuery };

struct PrefetchOptions {
  PredictorKind predictor = PredictorKind::kAuto;
  std::optional<int> depth;  // layers ahead, 0 = off; none: from measured times

  bool off() const { return predictor == PredictorKind::kNone || depth == 0; }
};

// What predictions need of a step's scratch.
struct PredictionScratch {
  int max_depth = 0;         // layers
  bool writes_sets = false;  // predictions are sets of their own
};

}  // namespace fasa
