// The settings that a model's generation_config.json asks for.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/llm/sampling.h"

namespace fasa {

// Fields that the file does not name are absent. Temperature, top_k, top_p and min_p count where
// do_sample is true, with a temperature of 1 where none is named, as in transformers; else the file
// asks for greedy decoding, and names none of them. The penalty counts either way.
struct GenerationDefaults {
  std::optional<float> temperature;
  std::optional<int> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;

  // From generation_config.json in a model's folder, or from a GGUF file's metadata; empty if there
  // is none. Throws InputError naming file and key.
  static GenerationDefaults load(const std::string& model);
  static GenerationDefaults parse(std::string_view json, const std::string& name);
};

// What a user said, field by field; what is absent is the model's, else Sampling's own.
struct SamplingChoice : GenerationDefaults {
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;

  Sampling over(const GenerationDefaults& defaults) const;
};

}  // namespace fasa
