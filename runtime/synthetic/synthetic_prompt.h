// A prompt without a model: a sequence of any geometry and length is prefilled through the real
// runtime on the emulated device, in virtual time. Kernels cost what they would; what crosses the
// link is what the runtime moves.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/api/kv_metrics.h"
#include "runtime/synthetic/synthetic_decode.h"

namespace fasa {

struct SyntheticPromptResult {
  double seconds = 0;        // from the first step until the logits are on the host
  TransferTotals transfers;  // all that crossed the link
  FetchBytes rows;           // rows alone
  bool wide_waves = false;   // the last step's, see StepScratch
};

// How the prompt is read.
struct SyntheticReading {
  int chunk = 0;  // tokens of a step, or of a chunk that goes layer by layer
  int piece = 0;  // tokens of a piece of such a chunk; 0: by steps
};

// `settings.tokens` tokens of one sequence. `on_step` after each step or layer. Throws UsageError,
// BudgetError.
SyntheticPromptResult synthetic_prompt(
    const SyntheticOptions& settings, const SyntheticReading& reading,
    const std::function<void(int64_t done, int64_t total)>& on_step = {});

}  // namespace fasa
