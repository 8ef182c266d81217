#include "runtime/llm/config/config_parts.h"

#include <fmt/format.h>

#include <optional>

namespace fasa {
namespace {

void refuse_bidirectional(const JsonFields& fields) {
  if (fields.boolean_or("use_bidirectional_attention", false)) {
    fields.fail("use_bidirectional_attention", "false");
  }
}

// The heads that per_layer_config gives each layer, or the older keys of layers without a window.
std::vector<HeadShape> read_gemma4_heads(const JsonFields& fields, const std::string& name,
                                         const ModelConfig& config) {
  constexpr const char* kPerLayer = "per_layer_config";
  constexpr int kGlobalHeadDim = 512;
  const auto read = [&](const JsonFields& from, const char* dim, const char* heads, int head_dim) {
    const auto width = static_cast<int>(from.integer_or(dim, 2, kMaxHeadDim, head_dim));
    const auto count = static_cast<int>(from.integer_or(heads, 1, kMaxHeads, config.kv_heads));
    if (width % 2 != 0) from.fail(dim, "an even number");
    if (config.query_heads % count != 0) {
      from.fail(heads, fmt::format("a divisor of num_attention_heads = {}", config.query_heads));
    }
    return HeadShape{count, width, width, width};
  };
  const HeadShape usual{config.kv_heads, config.head_dim, config.head_dim, config.head_dim};
  std::vector<HeadShape> all(static_cast<size_t>(config.layers), usual);
  const bool per_layer = fields.has(kPerLayer);
  if (per_layer && !fields.at(kPerLayer).is_object()) fields.fail(kPerLayer, "an object");
  for (int layer = 0; layer < config.layers; ++layer) {
    HeadShape& heads = all[static_cast<size_t>(layer)];
    const std::string key = fmt::to_string(layer);
    if (!per_layer && config.window(layer) == 0) {
      heads = read(fields, "global_head_dim",
                   config.keys_as_values ? "num_global_key_value_heads" : "num_key_value_heads",
                   kGlobalHeadDim);
    } else if (per_layer && fields.at(kPerLayer).contains(key)) {
      const JsonFields own(fields.at(kPerLayer).at(key), name,
                           fmt::format("{}{}.{}.", fields.prefix(), kPerLayer, key));
      heads = read(own, "head_dim", "num_key_value_heads", config.head_dim);
    }
  }
  return all;
}

}  // namespace

void read_gemma2(const JsonFields& fields, ModelConfig* config) {
  constexpr double kLow = 1e-3, kHigh = 1e6;
  refuse_bidirectional(fields);
  const auto cap = [&](const char* key, double otherwise) {
    const bool none = fields.present(key) && !fields.has(key);
    return none ? 0.0f : static_cast<float>(fields.number_or(key, kLow, kHigh, otherwise));
  };
  config->score_cap = cap("attn_logit_softcapping", 50);
  config->logits_cap = cap("final_logit_softcapping", 30);
}

void read_gemma3(const JsonFields& fields) {
  refuse_bidirectional(fields);
  for (const char* const key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (fields.has(key)) fields.fail(key, "null");
  }
}

void read_gemma4(const JsonFields& fields, const std::string& name, ModelConfig* config) {
  constexpr const char* kDirections = "use_bidirectional_attention";
  if (fields.has(kDirections) && fields.text(kDirections) != "vision") {
    fields.fail(kDirections, "null or vision");
  }
  if (fields.has("final_logit_softcapping")) {
    config->logits_cap =
        static_cast<float>(fields.number_or("final_logit_softcapping", 1e-3, 1e6, 1));
  }
  if (fields.present("sliding_window") && !fields.has("sliding_window")) {
    fields.fail("sliding_window", "a number of tokens");
  }
  config->keys_as_values = fields.boolean_or("attention_k_eq_v", false);
  config->shared_layers =
      static_cast<int>(fields.integer_or("num_kv_shared_layers", 0, config->layers - 1, 0));
  config->wide_shared_mlp = fields.boolean_or("use_double_wide_mlp", false);
  constexpr const char* kLayerInput = "hidden_size_per_layer_input";
  const bool none = fields.present(kLayerInput) && !fields.has(kLayerInput);
  config->layer_input =
      none ? 0 : static_cast<int>(fields.integer_or(kLayerInput, 0, kMaxWidth, 256));
  config->layer_vocab_size =
      static_cast<int>(fields.integer_or("vocab_size_per_layer_input", 1, kMaxWidth, 262144));
  if (config->layer_input > 0 && config->layer_vocab_size < config->vocab_size) {
    fields.fail("vocab_size_per_layer_input",
                fmt::format("at least vocab_size = {}", config->vocab_size));
  }
  const std::vector<HeadShape> heads = read_gemma4_heads(fields, name, *config);
  std::optional<HeadShape> windowed, full;
  for (int layer = 0; layer < config->layers; ++layer) {
    std::optional<HeadShape>& kind = config->window(layer) > 0 ? windowed : full;
    const HeadShape& own = heads[static_cast<size_t>(layer)];
    if (!kind) kind = own;
    if (*kind != own) fields.fail("per_layer_config", "equal heads in all layers of a type");
  }
  config->kv_heads = full->kv_heads;
  config->head_dim = config->rotary_dims = full->key_dim;
  if (windowed && *windowed != *full) config->window_heads = *windowed;
  for (int layer = config->layers - config->shared_layers; layer < config->layers; ++layer) {
    if (config->kv_layer(layer) < 0) {
      fields.fail("num_kv_shared_layers", "a number that leaves layers of each type");
    }
  }
}

}  // namespace fasa
