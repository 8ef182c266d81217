// Memory that a model takes on a device, computed before it is loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/cpu/model/panel_kernel.h"
#include "kernels/row_format.h"
#include "runtime/base/dtype.h"
#include "runtime/config/weight_options.h"
#include "runtime/llm/compute/weight_bytes.h"
#include "runtime/llm/config/model_config.h"

namespace fasa {

struct ModelMemory {
  WeightBytes weights;
  uint64_t activations = 0;  // of a step, with logits of one token and kernels' scratch
  uint64_t activations_per_token = 0;

  uint64_t total() const { return weights.total + activations; }
};

// The exact bytes that Model::load and Model::reserve allocate. `path`: "" or a folder without
// weights means a model of `config`'s shape in 16 bits. `dtype`: as in Model::load. `order`:
// kPacked on devices where the CPU multiplies (cpu, emulated). Throws InputError for weights that
// do not fit `config`.
ModelMemory model_memory(const std::string& path, const ModelConfig& config,
                         std::optional<DType> dtype, const WeightOptions& weights,
                         int64_t step_tokens, PanelOrder order = PanelOrder::kPacked);

// Device memory for the keys and values of the head that `weights` asks for, of `tokens` tokens.
uint64_t mtp_row_bytes(const ModelConfig& config, const WeightOptions& weights, RowDType rows,
                       int64_t tokens);

}  // namespace fasa
