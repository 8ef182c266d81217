#include "runtime/llm/generation/generation_defaults.h"

#include <filesystem>
#include <limits>

#include "runtime/io/input_file.h"
#include "runtime/llm/config/defaults_file.h"
#include "runtime/llm/gguf/gguf_files.h"
#include "runtime/llm/gguf/gguf_texts.h"

namespace fasa {
namespace {

using Rule = DefaultsFile::Rule;

constexpr Rule kTemperature{"temperature", 0, 1e3, 1, "its default"};
constexpr Rule kTopK{"top_k", 0, 1 << 30, 0, "no limit", true};
constexpr Rule kTopP{"top_p", 1e-6, 1, 1, "no limit"};
constexpr Rule kMinP{"min_p", 0, 1, 0, "no limit"};
constexpr Rule kRepetition{"repetition_penalty", 1e-3, 1e3, 1, "no penalty"};

std::optional<float> number(const DefaultsFile& file, const Rule& rule) {
  const auto value = file.number(rule);
  return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
}

}  // namespace

GenerationDefaults GenerationDefaults::parse(std::string_view json, const std::string& name) {
  const DefaultsFile file(json, name);
  GenerationDefaults defaults;
  defaults.suppressed = file.ids("suppress_tokens");
  std::erase(defaults.suppressed, -1);
  defaults.repetition_penalty = number(file, kRepetition);
  if (!file.flag("do_sample")) return defaults;
  defaults.temperature = number(file, kTemperature).value_or(1.0f);
  if (const auto top_k = file.number(kTopK)) defaults.top_k = static_cast<int>(*top_k);
  defaults.top_p = number(file, kTopP);
  defaults.min_p = number(file, kMinP);
  return defaults;
}

GenerationDefaults GenerationDefaults::load(const std::string& model) {
  if (is_gguf(model)) {
    return parse(gguf_generation_json(GgufFiles(model, GgufScope::kKeys).header()), model);
  }
  const std::string path = (std::filesystem::path(model) / "generation_config.json").string();
  if (!std::filesystem::exists(path)) return {};
  return parse(read_file(path), path);
}

GenerationDefaults GenerationDefaults::or_if_silent(const GenerationDefaults& usual) const {
  GenerationDefaults all = *this;
  if (top_k || top_p || min_p) return all;
  all.top_k = usual.top_k;
  all.top_p = usual.top_p;
  all.min_p = usual.min_p;
  return all;
}

Sampling SamplingChoice::over(const GenerationDefaults& defaults) const {
  const Sampling own;
  Sampling sampling;
  const auto choose = [](const auto& chosen, const auto& model, auto usual) {
    return chosen ? *chosen : model.value_or(usual);
  };
  sampling.temperature = choose(temperature, defaults.temperature, own.temperature);
  sampling.top_k = choose(top_k, defaults.top_k, own.top_k);
  sampling.top_p = choose(top_p, defaults.top_p, own.top_p);
  sampling.min_p = choose(min_p, defaults.min_p, own.min_p);
  sampling.repetition_penalty =
      choose(repetition_penalty, defaults.repetition_penalty, own.repetition_penalty);
  sampling.repetition_window = repetition_window.value_or(own.repetition_window);
  sampling.presence_penalty = presence_penalty.value_or(own.presence_penalty);
  sampling.frequency_penalty = frequency_penalty.value_or(own.frequency_penalty);
  for (const int32_t id : defaults.suppressed) {
    sampling.logit_bias.emplace_back(id, -std::numeric_limits<float>::infinity());
  }
  return sampling;
}

}  // namespace fasa
