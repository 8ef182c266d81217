// Rotary position embedding: frequencies of a model, and cosines and sines of a step's positions.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/llm/model_config.h"

namespace fasa {

// Radians a position for each frequency chunk, [rotary_dims / 2]. In f32 as transformers computes
// them: at position 100000 an ulp of the frequency is already 0.01 radians.
std::vector<float> rope_frequencies(const ModelConfig& config);

// cosines and sines [rotary_dims / 2] of one position, times the scaling's attention factor.
void rope_angles(const std::vector<float>& frequencies, double attention_factor, int64_t position,
                 float* cosines, float* sines);

// Rotates the first `dim` dimensions of one head in place, half layout: (i, i + dim / 2).
void rope_rotate(float* head, int dim, const float* cosines, const float* sines);

// The same in interleaved layout: (2i, 2i + 1).
void rope_rotate_pairs(float* head, int dim, const float* cosines, const float* sines);

}  // namespace fasa
