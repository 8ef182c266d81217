#include "runtime/llm/generation_defaults.h"

#include <filesystem>

#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"
#include "runtime/llm/gguf/gguf_files.h"
#include "runtime/llm/gguf/gguf_texts.h"

namespace fasa {
namespace {

std::optional<float> number(const JsonFields& fields, const char* key, double low, double high) {
  if (!fields.has(key)) return std::nullopt;
  return static_cast<float>(fields.number(key, low, high));
}

}  // namespace

GenerationDefaults GenerationDefaults::parse(std::string_view json, const std::string& name) {
  const nlohmann::json document = parse_json(json, name);
  const JsonFields fields(document, name);
  GenerationDefaults defaults;
  defaults.repetition_penalty = number(fields, "repetition_penalty", 1e-3, 1e3);
  if (!fields.boolean_or("do_sample", false)) return defaults;
  defaults.temperature = number(fields, "temperature", 0, 1e3).value_or(1.0f);
  if (fields.has("top_k")) {
    defaults.top_k = static_cast<int>(fields.integer("top_k", 0, 1 << 30));
  }
  defaults.top_p = number(fields, "top_p", 1e-6, 1);
  defaults.min_p = number(fields, "min_p", 0, 1);
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
  sampling.presence_penalty = presence_penalty.value_or(own.presence_penalty);
  sampling.frequency_penalty = frequency_penalty.value_or(own.frequency_penalty);
  return sampling;
}

}  // namespace fasa
