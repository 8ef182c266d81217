// Rotary position embedding: cosines and sines of positions, and heads rotated by them.
#pragma once

#include <cstdint>
#include <span>

namespace fasa {

// cosines and sines [frequencies] of one position, times the scaling's attention factor.
// `frequencies`: radians a position for each frequency chunk.
void rope_angles(std::span<const float> frequencies, float attention_factor, int64_t position,
                 float* cosines, float* sines);

// Rotates the first `dim` dimensions of one head in place, half layout: (i, i + dim / 2).
void rope_rotate(float* head, int dim, const float* cosines, const float* sines);

// The same in interleaved layout: (2i, 2i + 1).
void rope_rotate_pairs(float* head, int dim, const float* cosines, const float* sines);

}  // namespace fasa
