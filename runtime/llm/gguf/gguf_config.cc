#include <fmt/format.h>

#include <cmath>

#include "runtime/base/error.h"
#include "runtime/llm/gguf/gguf_config_parts.h"
#include "runtime/llm/gguf/gguf_texts.h"

namespace fasa {
namespace {

bool has_tensor(const GgufHeader& header, std::string_view name) {
  return header.tensors().contains(std::string(name));
}

void add_heads(const GgufKeys& keys, const ModelFamily& family, nlohmann::json* config) {
  const int64_t hidden = keys.integer("embedding_length");
  const int64_t heads = keys.integer("attention.head_count");
  const int64_t head_dim = keys.integer_or("attention.key_length", hidden / heads);
  (*config)[family.keys.hidden] = hidden;
  (*config)[family.keys.query_heads] = heads;
  if (family.latent_attention) return;
  (*config)["head_dim"] = head_dim;
  const bool by_layer = family.type == "gemma4_text";  // counts follow from tensors
  if (family.keys.kv_heads != nullptr && !by_layer) {
    (*config)[family.keys.kv_heads] = keys.integer_or("attention.head_count_kv", heads);
  } else if (!by_layer && keys.integer_or("attention.head_count_kv", heads) != heads) {
    keys.fail("attention.head_count_kv", "attention.head_count");
  }
  if (keys.integer_or("attention.value_length", head_dim) != head_dim) {
    keys.fail("attention.value_length", "attention.key_length");
  }
  const int64_t rotated = keys.integer_or("rope.dimension_count", head_dim);
  if (rotated > head_dim || (rotated != head_dim && !family.partial_rotary)) {
    keys.fail("rope.dimension_count", "the key length of a head");
  }
  if (!family.partial_rotary) return;
  // The smallest share whose product with head_dim reaches `rotated`.
  const double share = static_cast<double>(rotated) / static_cast<double>(head_dim);
  (*config)["partial_rotary_factor"] = rotated == head_dim ? 1.0 : std::nextafter(share, 1.0);
}

// Factors that the family has. Others are refused where all keys are checked.
void add_factors(const GgufKeys& keys, const ConfigKeys& names, nlohmann::json* config) {
  const std::pair<const char*, const char*> factors[] = {
      {"attention.scale", names.score_scale},
      {"embedding_scale", names.embedding_scale},
      {"residual_scale", names.residual_scale},
      {"logit_scale", names.logits_divisor != nullptr ? names.logits_divisor : names.logits_scale}};
  for (const auto& [key, name] : factors) {
    if (name != nullptr && keys.has(key)) (*config)[name] = keys.number(key);
  }
}

// What follows from the tensors of the first layer.
void add_choices(const GgufHeader& header, const GgufKeys& keys, const ModelFamily& family,
                 nlohmann::json* config) {
  const auto has = [&](const char* name) {
    return has_tensor(header, fmt::format("blk.0.{}", name));
  };
  const auto add = [&](const Choice& choice, bool value) {
    if (choice.key != nullptr) (*config)[choice.key] = value || config->value(choice.key, false);
  };
  add(family.biases.qkv, has("attn_q.bias") || has("attn_qkv.bias"));
  add(family.biases.output, has("attn_output.bias"));
  add(family.biases.mlp, has("ffn_down.bias"));
  add(family.has_head_norm, has("attn_q_norm.weight"));
  if (family.parallel.key == nullptr) return;
  // Only one norm: attention and MLP read the same input.
  const bool parallel = family.one_norm_when_parallel
                            ? !has("ffn_norm.weight")
                            : keys.boolean_or("use_parallel_residual", family.parallel.otherwise);
  keys.has("use_parallel_residual");
  (*config)[family.parallel.key] = parallel;
}

void add_phi3(const GgufKeys& keys, nlohmann::json* config) {
  const int64_t window = keys.integer_or("attention.sliding_window", 0, 0);
  if (window > 0) (*config)["sliding_window"] = window;
}

// A llama model with windows is a mistral model.
void add_llama(const GgufKeys& keys, nlohmann::json* config) {
  const int64_t window = keys.integer_or("attention.sliding_window", 0, 0);
  if (window == 0) return;
  if ((*config)["model_type"] == "llama") (*config)["model_type"] = "mistral";
  (*config)["sliding_window"] = window;
}

void add_gpt_oss(const GgufKeys& keys, nlohmann::json* config) {
  (*config)["intermediate_size"] = keys.integer("expert_feed_forward_length");
  (*config)["sliding_window"] = keys.integer("attention.sliding_window");
}

// A model of this architecture that has windows is olmo3.
void add_olmo2(const GgufKeys& keys, nlohmann::json* config) {
  if (!keys.has("attention.sliding_window")) return;
  (*config)["model_type"] = "olmo3";
  (*config)["rope_local_base_freq"] =
      keys.number_or("rope.freq_base_swa", keys.number_or("rope.freq_base", 10000));
  add_gguf_windows(keys, 4, config);
}

// Only the model of 64 layers has windows; its first files do not say so.
void add_exaone4(const GgufKeys& keys, nlohmann::json* config) {
  constexpr const char* kWindow = "attention.sliding_window";
  (*config)["sliding_window"] = nullptr;
  if (!keys.has(kWindow) && (*config)["num_hidden_layers"] != 64) return;
  add_gguf_windows(keys, 4, config, 4096);
}

// Files do not say it: all published models have this window.
void add_starcoder2(const GgufKeys& keys, nlohmann::json* config) {
  (*config)["sliding_window"] = keys.integer_or("attention.sliding_window", 4096);
}

void add_mpt(const GgufKeys& keys, nlohmann::json* config) {
  const double bias = keys.number_or("attention.max_alibi_bias", 8);
  (*config)["attn_config"] = {{"alibi", bias > 0}, {"alibi_bias_max", bias > 0 ? bias : 8.0}};
}

// Layers with linear attention are those without keys. Value heads lie in another order than in
// folders, except in qwen3next.
void add_linear(const GgufHeader& header, const GgufKeys& keys,
                const GgufArchitecture& architecture, nlohmann::json* config) {
  const auto layers = (*config)["num_hidden_layers"].get<int64_t>();
  nlohmann::json kinds = nlohmann::json::array();
  for (int64_t layer = 0; layer < layers; ++layer) {
    const bool full = has_tensor(header, fmt::format("blk.{}.attn_k.weight", layer));
    kinds.push_back(full ? "full_attention" : "linear_attention");
  }
  const int64_t heads = keys.integer("ssm.time_step_rank");
  const int64_t width = keys.integer("ssm.inner_size");
  if (width % heads != 0) keys.fail("ssm.inner_size", "a multiple of ssm.time_step_rank");
  config->update({{"layer_types", kinds},
                  {"linear_num_value_heads", heads},
                  {"linear_value_head_dim", width / heads},
                  {"linear_num_key_heads", keys.integer("ssm.group_count")},
                  {"linear_key_head_dim", keys.integer("ssm.state_size")},
                  {"linear_conv_kernel_dim", keys.integer("ssm.conv_kernel")},
                  {"linear_heads_by_turns", architecture.name != "qwen3next"}});
}

// The MLP's width; models whose layers all have experts may leave it out.
int64_t mlp_width(const GgufKeys& keys) {
  constexpr const char* kWidth = "feed_forward_length";
  constexpr const char* kOfExperts = "expert_feed_forward_length";
  return keys.integer(!keys.has(kWidth) && keys.has(kOfExperts) ? kOfExperts : kWidth);
}

// The part of a config that one architecture alone has.
void add_own(const GgufHeader& header, const GgufKeys& keys, const GgufArchitecture& architecture,
             nlohmann::json* config) {
  const std::string_view name = architecture.name;
  if (name == "llama") add_llama(keys, config);
  if (name == "phi3") add_phi3(keys, config);
  if (name == "gemma2") add_gguf_gemma2(keys, config);
  if (name == "gemma3") add_gguf_gemma3(keys, config);
  if (name == "gpt-oss") add_gpt_oss(keys, config);
  if (name == "olmo2") add_olmo2(keys, config);
  if (name == "exaone4") add_exaone4(keys, config);
  if (name == "cohere2") add_gguf_windows(keys, 4, config);
  if (name == "starcoder2") add_starcoder2(keys, config);
  if (name == "mpt") add_mpt(keys, config);
  if (keys.has("ssm.inner_size")) add_linear(header, keys, architecture, config);
  if (name == "gemma4") add_gguf_gemma4(header, keys, config);
}

nlohmann::json config_of(const GgufHeader& header, const GgufKeys& keys,
                         const GgufArchitecture& architecture) {
  const ModelFamily& family = architecture.family();
  const auto embeddings = header.tensors().find("token_embd.weight");
  if (embeddings == header.tensors().end() || embeddings->second.shape.size() != 2) {
    throw InputError(fmt::format("{}: the matrix token_embd.weight is missing; {}", header.name(),
                                 header.tensors().empty()
                                     ? "the file has no tensors, perhaps a vocabulary alone"
                                     : "is the file complete?"));
  }
  // Stored as f32 (9.99999974e-06): rounding to six digits restores the intended value.
  const char* const eps_key = family.norm == NormKind::kLayer ? "attention.layer_norm_epsilon"
                                                              : "attention.layer_norm_rms_epsilon";
  nlohmann::json config = {
      {"model_type", architecture.model_type},
      {"vocab_size", embeddings->second.shape[0]},
      {family.keys.layers, architecture.layers(header)},
      {family.keys.norm_eps, six_digits(keys.number(eps_key))},
      {"num_nextn_predict_layers", architecture.predicting_layers(header)},
      {"tie_word_embeddings", !has_tensor(header, "output.weight")},
      {"eos_token_id", gguf_ends(header)},
  };
  for (const char* const key : {"block_count", "nextn_predict_layers"}) keys.has(key);
  const bool by_layer = family.type == "gemma4_text";
  if (family.keys.intermediate != nullptr && !by_layer) {
    config[family.keys.intermediate] = mlp_width(keys);
  }
  const int64_t context = keys.integer("context_length");
  if (family.keys.positions != nullptr) config[family.keys.positions] = context;
  add_heads(keys, family, &config);
  add_factors(keys, family.keys, &config);
  add_choices(header, keys, family, &config);
  if (architecture.experts != GgufExperts::kNone) {
    add_gguf_experts(header, keys, architecture, &config);
  }
  if (family.latent_attention) add_gguf_latent(header, keys, &config);
  if (family.position == PositionKind::kRotary) add_gguf_rope(header, keys, family, &config);
  add_own(header, keys, architecture, &config);
  return config;
}

}  // namespace

std::string gguf_config_json(const GgufHeader& header) {
  const GgufArchitecture& architecture = GgufArchitecture::of(header);
  const GgufKeys keys(header, architecture.name);
  const nlohmann::json config = config_of(header, keys, architecture);
  require_known_keys(header, keys);
  return config.dump();
}

std::vector<std::string> gguf_unknown_keys(const GgufHeader& header) {
  const GgufArchitecture& architecture = GgufArchitecture::of(header);
  const GgufKeys keys(header, architecture.name);
  config_of(header, keys, architecture);
  return unknown_keys(header, keys);
}

}  // namespace fasa
