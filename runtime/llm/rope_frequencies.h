// Frequencies of a model's rotary position embedding.
#pragma once

#include <vector>

#include "runtime/llm/model_config.h"

namespace fasa {

// Radians a position for each frequency chunk, [rotary_dims / 2]. In f32 as transformers computes
// them: at position 100000 an ulp of the frequency is already 0.01 radians.
std::vector<float> rope_frequencies(const ModelConfig& config);

}  // namespace fasa
