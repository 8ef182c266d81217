// How a prompt would be read, as the runtime chooses by memory, and what that costs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "runtime/api/prefill_chunk.h"
#include "runtime/catalog/model_shape.h"
#include "runtime/plan/prompt_cost.h"

namespace fasa {

struct PromptRequest {
  int64_t tokens = 0;
  std::optional<int> chunk = {};  // none: automatic
  const ModelShape& model;
  WeightLoad weights = {};
  // Device memory that is free beside weights, the cache, and activations and scratch for steps of
  // so many tokens.
  std::function<uint64_t(int)> left;
};

struct PromptPlan : PromptCost {
  // Tokens of a step; or of a chunk that goes layer by layer, and of its pieces.
  int chunk = kMinPrefillChunk;
  int piece = 0;  // 0: by steps
};

// Without seconds if the machine's rate of operations is not known.
PromptPlan plan_prompt(const StepSettings& settings, const MachineRates& machine,
                       const PromptRequest& request);

}  // namespace fasa
