#include "runtime/llm/config/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fasa {
namespace {

// Divides low frequencies by `factor`, keeps high ones, blends between.
void scale_llama3(const RopeParameters& rope, std::vector<float>* frequencies) {
  const auto original = static_cast<double>(rope.original_positions);
  const double low_wave = original / rope.low_freq_factor;
  const double high_wave = original / rope.high_freq_factor;
  const auto factor = static_cast<float>(rope.factor);
  for (float& frequency : *frequencies) {
    const double wave = 2 * std::numbers::pi / static_cast<double>(frequency);
    if (wave > low_wave) {
      frequency /= factor;
    } else if (wave >= high_wave) {
      const auto smooth = static_cast<float>((original / wave - rope.low_freq_factor) /
                                             (rope.high_freq_factor - rope.low_freq_factor));
      frequency = (1 - smooth) * frequency / factor + smooth * frequency;
    }
  }
}

// YaRN (arXiv 2309.00071): pairs that turn more than beta_fast times within the original context
// are kept, those below beta_slow are stretched, with a linear ramp between.
void scale_yarn(const RopeParameters& rope, int dim, std::vector<float>* frequencies) {
  const auto turning = [&](double rotations) {
    return dim *
           std::log(static_cast<double>(rope.original_positions) /
                    (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = turning(rope.beta_fast);
  double high = turning(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies->size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const auto keep = static_cast<float>(1 - ramp);
    const float frequency = (*frequencies)[i];
    (*frequencies)[i] = frequency / static_cast<float>(rope.factor) * (1 - keep) + frequency * keep;
  }
}

}  // namespace

std::vector<float> rope_frequencies(const RopeParameters& rope, int rotary_dims) {
  const int dim = rotary_dims;
  std::vector<float> frequencies(static_cast<size_t>(dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    frequencies[i] = 1.0f / std::pow(static_cast<float>(rope.theta), exponent);
  }
  switch (rope.kind) {
    case RopeKind::kDefault:
      break;
    case RopeKind::kLinear:
      for (float& frequency : frequencies) frequency /= static_cast<float>(rope.factor);
      break;
    case RopeKind::kLlama3:
      scale_llama3(rope, &frequencies);
      break;
    case RopeKind::kYarn:
      scale_yarn(rope, dim, &frequencies);
      break;
    case RopeKind::kProportional: {
      const auto turning = static_cast<size_t>(rope.share * dim / 2);
      for (size_t i = 0; i < frequencies.size(); ++i) {
        frequencies[i] = i < turning ? frequencies[i] / static_cast<float>(rope.factor) : 0.0f;
      }
      break;
    }
    case RopeKind::kLongRope:
      for (size_t i = 0; i < frequencies.size(); ++i) {
        frequencies[i] /= static_cast<float>(rope.pair_factors.at(i));
      }
      break;
  }
  return frequencies;
}

std::vector<Rotation> make_rotations(const ModelConfig& config) {
  std::vector<Rotation> all;
  const auto add = [&](const RopeParameters& rope, int rotation) {
    all.push_back({rope_frequencies(rope, config.rotary_dims_of(rotation)), rope.attention_factor});
  };
  add(config.rope, 0);
  if (config.local_rope) add(*config.local_rope, 1);
  return all;
}

}  // namespace fasa
