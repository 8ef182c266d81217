// How a command opens a model, and what it says of longrope, which has two sets of factors
// (rope_parameters.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/llm/compute/model.h"

namespace fasa {

// The longest context of a run: it decides which factors longrope takes.
struct ContextBound {
  int64_t tokens = 0;     // 0: the model's own
  std::string_view what;  // as in "--max-context"
};

// Model::load(); says on stderr which set of factors a model with two has taken.
Model load_model(const std::string& path, Device& device, std::optional<DType> dtype,
                 const WeightOptions& weights, const ContextBound& context);

// That line alone. Nothing for models with one set.
void print_long_rope(const ModelConfig& config, std::string_view context);

}  // namespace fasa
