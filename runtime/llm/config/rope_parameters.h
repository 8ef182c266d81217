// Rotary position embedding as config.json describes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/io/json_fields.h"

namespace fasa {

inline constexpr int64_t kMaxPositions = int64_t{1} << 30;  // positions are int32

// kProportional: of all pairs of a head only the first turn, `share` of them, with the frequencies
// that they would have if all did, divided by `factor`.
enum class RopeKind : uint8_t { kDefault, kLinear, kLlama3, kYarn, kLongRope, kProportional };

struct RopeParameters {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000;
  double factor = 1;
  int64_t original_positions = 0;  // context length before the model was extended
  double low_freq_factor = 1;      // llama3
  double high_freq_factor = 4;
  double beta_fast = 32;  // yarn
  double beta_slow = 1;
  bool truncate = true;
  double attention_factor = 1;       // multiplies cosines and sines
  std::vector<double> pair_factors;  // longrope: divisor of each frequency
  // Set if the short set of longrope was taken because no context is longer: the long one, which
  // names the model in scaling_text().
  std::vector<double> long_factors;
  // deepseek: multiplies the score scale; the square of YaRN's mscale_all_dim factor.
  double score_factor = 1;
  double query_growth = 0;  // llama_4_scaling_beta, see ModelConfig::query_growth
  double share = 1;         // rotated share of a head's dimensions, the first ones

  // Canonical text of the scaling, "" = none. Part of a model's fingerprint.
  std::string scaling_text() const;
};

// Defaults of a family's rotary settings, and what its configs may set.
struct RotaryDefaults {
  double share = 1;      // of a head's dimensions
  bool partial = false;  // a share below 1 is allowed
  bool proportional = false;
  double theta = 10000;
  int64_t context = 0;  // tokens of the longest context to run; 0 = all that the model has
};

// Reads rope_parameters (transformers 5), or the older rope_theta and rope_scaling, whose kind was
// once called "type"; gpt_neox had rotary_pct and rotary_emb_base. If rope_parameters differs by
// kind of layer, reads that of full attention. `name`: the file. Throws InputError.
RopeParameters read_rope(const JsonFields& config, const std::string& name, int64_t max_positions,
                         const RotaryDefaults& defaults);
// Parameters of windowed layers, if they differ: rope_parameters.sliding_attention, or before
// transformers 5 rope_local_base_freq.
RopeParameters read_local_rope(const JsonFields& config, const std::string& name,
                               int64_t max_positions, double theta);

}  // namespace fasa
