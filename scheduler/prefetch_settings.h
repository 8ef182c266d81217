// What is fetched before it is asked for, as the configuration has it.
#pragma once

#include <cstdint>
#include <optional>

namespace fasa {

enum class PredictorKind : uint8_t {
  kAuto,          // next-query where queries are estimated, else previous-step
  kNone,          // nothing is guessed
  kPreviousStep,  // what a layer's hot rows held and lost
  kNextQuery,     // what the estimated query of a later layer selects
};

struct PrefetchSettings {
  PredictorKind predictor = PredictorKind::kAuto;
  std::optional<int> depth;  // layers ahead, 0 = off; none: from measured times

  bool off() const { return predictor == PredictorKind::kNone || depth == 0; }
};

// What guessing asks of a step's scratch.
struct GuessScratch {
  int most_ahead = 0;        // layers
  bool writes_sets = false;  // guesses are sets of their own
};

}  // namespace fasa
