// Frequencies of a model's rotary position embeddings.
#pragma once

#include <vector>

#include "runtime/llm/model_config.h"

namespace fasa {

struct Rotation {
  // Radians a position for each frequency chunk, [rotary_dims / 2]. In f32 as transformers computes
  // them: at position 100000 an ulp of the frequency is already 0.01 radians.
  std::vector<float> frequencies;
  double factor = 1;  // of cosines and sines
};

std::vector<float> rope_frequencies(const RopeParameters& rope, int rotary_dims);
// All of a model, as ModelConfig::rotation() counts them.
std::vector<Rotation> make_rotations(const ModelConfig& config);

}  // namespace fasa
