#include "kernels/cpu/model/rope.h"

#include <cmath>

namespace fasa {

void rope_angles(std::span<const float> frequencies, float attention_factor, int64_t position,
                 float* cosines, float* sines) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    cosines[i] = std::cos(angle) * attention_factor;
    sines[i] = std::sin(angle) * attention_factor;
  }
}

void rope_rotate(float* head, int dim, const float* cosines, const float* sines) {
  const int half = dim / 2;
  for (int i = 0; i < half; ++i) {
    const float first = head[i];
    const float second = head[i + half];
    head[i] = first * cosines[i] - second * sines[i];
    head[i + half] = second * cosines[i] + first * sines[i];
  }
}

void rope_rotate_pairs(float* head, int dim, const float* cosines, const float* sines) {
  for (int i = 0; i < dim / 2; ++i) {
    const float first = head[2 * i];
    const float second = head[2 * i + 1];
    head[2 * i] = first * cosines[i] - second * sines[i];
    head[2 * i + 1] = second * cosines[i] + first * sines[i];
  }
}

}  // namespace fasa
