// Frequencies of a model's rotary position embeddings.
#pragma once

#include <vector>

#include "runtime/llm/config/model_config.h"

namespace fasa {

struct Rotation {
  // Radians per position for each frequency chunk, [rotary_dims / 2]. Computed in f32 as
  // transformers does: at position 100000 an ulp of the frequency is already 0.01 radians.
  std::vector<float> frequencies;
  double factor = 1;  // multiplies cosines and sines
};

std::vector<float> rope_frequencies(const RopeParameters& rope, int rotary_dims);
// All rotations of a model, indexed by ModelConfig::rotation().
std::vector<Rotation> make_rotations(const ModelConfig& config);

}  // namespace fasa
