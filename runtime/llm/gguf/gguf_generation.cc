#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/llm/gguf/gguf_texts.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

// A value of any type; a reader of generation_config.json decides whether it can be used.
Json value_of(const GgufHeader& header, const std::string& key) {
  if (header.has_array(key)) return "an array";
  switch (*header.type(key)) {
    case GgufType::kString:
      return std::string(*header.text(key));
    case GgufType::kBool:
      return header.boolean_or(key, false);
    default:
      break;
  }
  const double number = header.any_number(key);
  if (!std::isfinite(number)) return fmt::format("{}", number);
  const bool whole = number == std::floor(number) && std::abs(number) < 1e15;
  return whole ? Json(static_cast<int64_t>(number)) : Json(number);
}

}  // namespace

// do_sample is true for a temperature above 0; if other settings come without a temperature, it is
// 1, as for a folder.
std::string gguf_generation_json(const GgufHeader& header) {
  constexpr std::pair<const char*, const char*> kKeys[] = {{"temp", "temperature"},
                                                           {"top_p", "top_p"},
                                                           {"min_p", "min_p"},
                                                           {"penalty_repeat", "repetition_penalty"},
                                                           {"top_k", "top_k"}};
  Json settings = Json::object();
  for (const auto& [key, name] : kKeys) {
    const std::string own = fmt::format("general.sampling.{}", key);
    if (header.has(own)) settings[name] = value_of(header, own);
  }
  const bool only_penalty = settings.size() == settings.count("repetition_penalty");
  const Json temperature = settings.value("temperature", Json(1));
  const bool is_greedy = temperature.is_number() && temperature.get<double>() <= 0;
  settings["do_sample"] = !only_penalty && !is_greedy;
  for (const double id : header.numbers("tokenizer.ggml.suppress_tokens")) {
    settings["suppress_tokens"].push_back(
        static_cast<int64_t>(std::isnan(id) ? -1.0 : std::clamp(id, -1.0, 1e9)));
  }
  return settings.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace fasa
