// Records the tokens that a model's selections take during generation, and those that predictions
// of later layers' queries would prefetch.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/llm/compute/model.h"
#include "runtime/trace/selection_trace.h"

namespace fasa {

struct TraceOptions {
  int steps = 64;
  int prefill_chunk = 512;
  // Key dimensions of all FCs of every head, best first (FcMap::slice_dims); empty = natural order.
  std::vector<int16_t> ranked_dims;
  std::string model_name;
  std::string text_name;
  std::function<void(int64_t done, int64_t total)> on_token = {};  // prompt and steps together

  // Throws UsageError naming the flag, what was given and what is allowed.
  void validate(const Config& config, const Geometry& geometry) const;
};

// Runs the prompt, then `steps` greedy steps (also past an end of sequence) with the config's
// selection: one fac_tokens count for all layers. A true set is the runtime's own selection. The
// ranking reaches to four times a set's competing tokens. Needs host memory for slices beside the
// runtime's. Throws UsageError, BudgetError.
SelectionTrace record_selection_trace(Model& model, const Config& config,
                                      std::span<const int32_t> prompt, const TraceOptions& options);

}  // namespace fasa
