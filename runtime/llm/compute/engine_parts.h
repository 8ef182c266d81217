// Objects that the work of all steps of a model refers to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/linear_params.h"
#include "offload/device.h"
#include "offload/operation_tag.h"
#include "runtime/base/dtype.h"
#include "runtime/llm/compute/activations.h"
#include "runtime/llm/compute/matrix.h"
#include "runtime/llm/compute/weights.h"
#include "runtime/llm/config/model_config.h"
#include "runtime/llm/config/rope_frequencies.h"

namespace fasa {

struct EngineParts {
  Device& device;
  const ModelConfig& config;
  const LinearLayout& linear;
  const Weights& weights;
  const Activations& activations;
  DType dtype;
  const std::vector<Rotation>& rotations;
  StreamView stream;
};

// Shape of one step. Must outlive the work that refers to it.
struct StepShape {
  int64_t tokens = 0;
  std::vector<int32_t> positions;           // of each token
  std::vector<int32_t> logit_rows;          // tokens whose logits are wanted, ascending
  std::vector<RowRun> runs;                 // the tokens' rows, by phase of their sequences
  std::vector<RowRun> logit_runs;           // the logits' rows, by phase
  std::span<const LinearPart> linear = {};  // sequences, for layers with linear attention
  // Hidden states [tokens, hidden] on the device: those that a head of multi-token prediction
  // reads, and the output of the final norm, if it is wanted.
  float* given_states = nullptr;
  float* states = nullptr;
  Cause cause = Cause::kCompute;  // kPrefill if a sequence is in prefill
};

// Addresses of a step's host inputs and of the rotation frequencies, as the work reads them.
struct StepInputs {
  float* residual = nullptr;                       // [tokens, hidden]
  float* layer_inputs = nullptr;                   // [tokens, layers, layer_input]
  const int32_t* positions = nullptr;              // [tokens]
  const int32_t* logit_rows = nullptr;             // StepShape::logit_rows
  std::span<const LinearPart> linear = {};         // StepShape::linear
  std::span<const float* const> frequencies = {};  // per rotation: [rotary_dims / 2]
  const ExpertLayerWeights* experts = nullptr;     // of a piece's layer, if they are elsewhere
};

}  // namespace fasa
