// Sampling settings from a model's generation_config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/llm/generation/sampling.h"

namespace fasa {

// Fields missing in the file are absent. As in transformers: with do_sample = true, temperature,
// top_k, top_p and min_p apply, and a missing temperature is 1; otherwise decoding is greedy and
// they are ignored. The penalty and suppressed tokens always apply.
struct GenerationDefaults {
  std::optional<float> temperature = {};
  std::optional<int> top_k = {};
  std::optional<float> top_p = {};
  std::optional<float> min_p = {};
  std::optional<float> repetition_penalty = {};
  std::vector<int32_t> suppressed = {};  // tokens that are never sampled

  // These, with `usual` limits on the tokens if they state none of top_k, top_p and min_p.
  GenerationDefaults or_if_silent(const GenerationDefaults& usual) const;

  // Reads generation_config.json in a model's folder, or a GGUF file's metadata; empty if there is
  // none. Unusable values are logged and ignored; values that mean "no limit" count as that.
  // Throws InputError for a file that cannot be read.
  static GenerationDefaults load(const std::string& model);
  static GenerationDefaults parse(std::string_view json, const std::string& name);
};

// What local servers send where a model states nothing: unlikely tokens are never sampled.
inline constexpr GenerationDefaults kLocalDefaults{.top_p = 0.95F, .min_p = 0.05F};

// The user's settings. Absent fields fall back to the model's defaults, then to Sampling's.
struct SamplingChoice : GenerationDefaults {
  std::optional<int> repetition_window;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;

  Sampling over(const GenerationDefaults& defaults) const;
};

}  // namespace fasa
