#include "runtime/llm/text_config.h"

#include <algorithm>
#include <string_view>

#include "runtime/io/json_fields.h"

namespace fasa {
namespace {

struct Wrapper {
  std::string_view type;
  const char* text_type;  // default of the text part
  bool tied;              // default of the whole; the text part's own value does not count
  const char* ignored;    // key of the text part that the wrapper does not apply, or null
};

constexpr Wrapper kWrappers[] = {
    {"gemma3", "gemma3_text", true, "final_logit_softcapping"},
    {"gemma4", "gemma4_text", true, nullptr},
    {"mistral3", "mistral", true, nullptr},
    {"qwen3_5", "qwen3_5_text", false, nullptr},
    {"qwen3_5_moe", "qwen3_5_moe_text", false, nullptr},
};

}  // namespace

TextConfig::TextConfig(const nlohmann::json& whole, const std::string& name) : whole_(whole) {
  constexpr const char* kPart = "text_config";
  const JsonFields fields(whole, name);
  const std::string type = fields.text("model_type").value_or("");
  const auto* const wrapper = std::find_if(std::begin(kWrappers), std::end(kWrappers),
                                           [&](const Wrapper& one) { return one.type == type; });
  if (wrapper == std::end(kWrappers)) return;
  if (!fields.has(kPart) || !fields.at(kPart).is_object()) fields.fail(kPart, "an object");
  text_ = fields.at(kPart);
  if (!text_.contains("model_type")) text_["model_type"] = wrapper->text_type;
  text_["tie_word_embeddings"] = fields.boolean_or("tie_word_embeddings", wrapper->tied);
  if (wrapper->ignored != nullptr) text_.erase(wrapper->ignored);
  if (fields.has("eos_token_id")) text_["eos_token_id"] = fields.at("eos_token_id");
  for (const char* const key : {"torch_dtype", "dtype"}) {
    if (fields.has(key)) text_["dtype"] = fields.at(key);
  }
}

}  // namespace fasa
