// What the work of all steps of a model refers to.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/device.h"
#include "offload/operation_tag.h"
#include "runtime/base/dtype.h"
#include "runtime/llm/activations.h"
#include "runtime/llm/matrix.h"
#include "runtime/llm/model_config.h"
#include "runtime/llm/rope_frequencies.h"
#include "runtime/llm/weights.h"

namespace fasa {

struct EngineParts {
  Device& device;
  const ModelConfig& config;
  const Weights& weights;
  const Activations& activations;
  DType dtype;
  const std::vector<Rotation>& rotations;
  StreamView stream;
};

// One step's shape. Outlives the work that refers to it.
struct StepShape {
  int64_t tokens = 0;
  std::vector<int32_t> positions;   // of each token
  std::vector<int32_t> logit_rows;  // tokens whose logits are wanted, ascending
  std::vector<RowRun> runs;         // of the tokens, by their sequences' phases
  std::vector<RowRun> logit_runs;   // of the logits' rows
  Cause cause = Cause::kCompute;    // kPrefill where the step fills
};

// Where the work reads what the host knows of a step, and the rotations' frequencies.
struct StepInputs {
  const int32_t* positions = nullptr;              // [tokens]
  const int32_t* logit_rows = nullptr;             // StepShape::logit_rows
  std::span<const float* const> frequencies = {};  // of each rotation [rotary_dims / 2]
};

}  // namespace fasa
