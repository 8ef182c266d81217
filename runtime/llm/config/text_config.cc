#include "runtime/llm/config/config_parts.h"

#include <algorithm>
#include <string_view>
#include <utility>

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

// Defaults of a text model's shape; 0: none.
struct Shape {
  std::string_view type;
  int vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, positions;
};

constexpr Shape kShapes[] = {
    {"gemma3_text", 262208, 2304, 9216, 26, 8, 4, 256, 131072},
    {"gemma4_text", 262144, 2304, 9216, 30, 8, 4, 256, 131072},
    {"qwen3_5_text", 248320, 4096, 12288, 32, 16, 4, 256, 32768},
    {"qwen3_5_moe_text", 248320, 2048, 0, 40, 16, 2, 256, 32768},
    {"qwen3_next", 151936, 2048, 5632, 48, 16, 2, 256, 32768},
    {"ministral3", 131072, 4096, 14336, 34, 32, 8, 128, 262144},
};

void add_defaults(nlohmann::json* text) {
  for (const Shape& shape : kShapes) {
    if (!text->contains("model_type") || (*text)["model_type"] != shape.type) continue;
    const std::pair<const char*, int> values[] = {{"vocab_size", shape.vocab},
                                                  {"hidden_size", shape.hidden},
                                                  {"intermediate_size", shape.intermediate},
                                                  {"num_hidden_layers", shape.layers},
                                                  {"num_attention_heads", shape.heads},
                                                  {"num_key_value_heads", shape.kv_heads},
                                                  {"head_dim", shape.head_dim},
                                                  {"max_position_embeddings", shape.positions}};
    for (const auto& [key, value] : values) {
      if (value != 0 && !text->contains(key)) (*text)[key] = value;
    }
  }
}

}  // namespace

TextConfig::TextConfig(const nlohmann::json& whole, const std::string& name) : text_(whole) {
  constexpr const char* kPart = "text_config";
  const JsonFields fields(whole, name);
  const std::string type = fields.text("model_type").value_or("");
  const auto* const wrapper = std::find_if(std::begin(kWrappers), std::end(kWrappers),
                                           [&](const Wrapper& one) { return one.type == type; });
  if (wrapper == std::end(kWrappers)) {
    add_defaults(&text_);
    return;
  }
  if (!fields.has(kPart) || !fields.at(kPart).is_object()) fields.fail(kPart, "an object");
  text_ = fields.at(kPart);
  prefix_ = "text_config.";
  if (!text_.contains("model_type")) text_["model_type"] = wrapper->text_type;
  text_["tie_word_embeddings"] = fields.boolean_or("tie_word_embeddings", wrapper->tied);
  if (wrapper->ignored != nullptr) text_.erase(wrapper->ignored);
  if (fields.has("eos_token_id")) text_["eos_token_id"] = fields.at("eos_token_id");
  for (const char* const key : {"torch_dtype", "dtype"}) {
    if (fields.has(key)) text_["dtype"] = fields.at(key);
  }
  add_defaults(&text_);
}

}  // namespace fasa
