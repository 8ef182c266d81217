#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/llm/gguf/gguf_architecture.h"
#include "runtime/llm/gguf/gguf_gemma.h"
#include "runtime/llm/gguf/gguf_rope.h"
#include "runtime/llm/gguf/gguf_texts.h"

namespace fasa {
namespace {

std::vector<int64_t> ends_of_text(const GgufHeader& header) {
  std::vector<int64_t> ids;
  for (const char* key : {"eos", "eot", "eom"}) {
    const std::string name = fmt::format("tokenizer.ggml.{}_token_id", key);
    if (header.has(name)) ids.push_back(header.integer(name, 0, GgufKeys::kMax));
  }
  return ids;
}

bool has_tensor(const GgufHeader& header, const char* name) {
  return header.tensors().contains(name);
}

void add_heads(const GgufKeys& keys, const GgufArchitecture& architecture, nlohmann::json* config) {
  const int64_t hidden = keys.integer("embedding_length");
  const int64_t heads = keys.integer("attention.head_count");
  const int64_t head_dim = keys.integer_or("attention.key_length", hidden / heads);
  const bool by_layer = keys.has_array("attention.head_count_kv");
  if (keys.integer_or("attention.value_length", head_dim) != head_dim) {
    keys.fail("attention.value_length", "attention.key_length");
  }
  const int64_t rotated = keys.integer_or("rope.dimension_count", head_dim);
  if (rotated > head_dim || (rotated != head_dim && !architecture.partial_rotary)) {
    keys.fail("rope.dimension_count", "the key length of a head");
  }
  if (rotated != head_dim) {  // smallest share whose product with head_dim reaches `rotated`
    (*config)["partial_rotary_factor"] =
        std::nextafter(static_cast<double>(rotated) / static_cast<double>(head_dim), 1.0);
  }
  (*config)["hidden_size"] = hidden;
  (*config)["num_attention_heads"] = heads;
  if (!by_layer) {
    (*config)["num_key_value_heads"] = keys.integer_or("attention.head_count_kv", heads);
  }
  (*config)["head_dim"] = head_dim;
}

// Adds granite's scaling factors that the file has.
void add_factors(const GgufKeys& keys, nlohmann::json* config) {
  constexpr std::pair<const char*, const char*> kFactors[] = {
      {"attention.scale", "attention_multiplier"},
      {"embedding_scale", "embedding_multiplier"},
      {"residual_scale", "residual_multiplier"},
      {"logit_scale", "logits_scaling"}};
  for (const auto& [key, name] : kFactors) {
    if (keys.has(key)) (*config)[name] = keys.number(key);
  }
}

void add_phi3(const GgufKeys& keys, nlohmann::json* config) {
  const int64_t window = keys.integer_or("attention.sliding_window", 0, 0);
  if (window > 0) (*config)["sliding_window"] = window;
}

// In all models of these architectures a token's expert weights sum to 1.
void add_experts(const GgufKeys& keys, nlohmann::json* config) {
  const int64_t count = keys.integer("expert_count");
  (*config)["num_local_experts"] = count;
  (*config)["num_experts_per_tok"] = keys.integer("expert_used_count");
  (*config)["norm_topk_prob"] = true;
  constexpr const char* kWidth = "expert_feed_forward_length";
  if (keys.has(kWidth)) (*config)["moe_intermediate_size"] = keys.integer(kWidth);
}

void add_gpt_oss(const GgufKeys& keys, nlohmann::json* config) {
  (*config)["intermediate_size"] = keys.integer("expert_feed_forward_length");
  (*config)["sliding_window"] = keys.integer("attention.sliding_window");
}

// A model of this architecture that has windows is olmo3.
void add_olmo2(const GgufKeys& keys, nlohmann::json* config) {
  if (!keys.has("attention.sliding_window")) return;
  (*config)["model_type"] = "olmo3";
  add_gguf_windows(keys, 4, config);
}

void add_mistral3(const GgufKeys& keys, const nlohmann::json& scaling, nlohmann::json* config) {
  nlohmann::json rope = scaling.is_null() ? nlohmann::json{{"rope_type", "default"}} : scaling;
  constexpr std::pair<const char*, const char*> kKeys[] = {
      {"rope.scaling.yarn_beta_fast", "beta_fast"},
      {"rope.scaling.yarn_beta_slow", "beta_slow"},
      {"attention.temperature_scale", "llama_4_scaling_beta"}};
  for (const auto& [key, name] : kKeys) {
    if (keys.has(key)) rope[name] = keys.number(key);
  }
  // Only one of mscale and mscale_all_dim is stored; models of this architecture have equal ones.
  if (keys.has("rope.scaling.yarn_log_multiplier")) rope["attention_factor"] = 1;
  rope["rope_theta"] = (*config)["rope_theta"];
  (*config)["rope_parameters"] = rope;
}

// Layers with linear attention are those without keys. Value heads lie in another order than in
// folders, except in qwen3next.
void add_linear(const GgufHeader& header, const GgufKeys& keys,
                const GgufArchitecture& architecture, nlohmann::json* config) {
  const int64_t layers =
      keys.integer("block_count") - keys.integer_or("nextn_predict_layers", 0, 0);
  if (layers < 1) keys.fail("nextn_predict_layers", "fewer than block_count");
  nlohmann::json kinds = nlohmann::json::array();
  for (int64_t layer = 0; layer < layers; ++layer) {
    const bool full = header.tensors().contains(fmt::format("blk.{}.attn_k.weight", layer));
    kinds.push_back(full ? "full_attention" : "linear_attention");
  }
  const int64_t heads = keys.integer("ssm.time_step_rank");
  const int64_t width = keys.integer("ssm.inner_size");
  if (width % heads != 0) keys.fail("ssm.inner_size", "a multiple of ssm.time_step_rank");
  config->update({{"num_hidden_layers", layers},
                  {"layer_types", kinds},
                  {"linear_num_value_heads", heads},
                  {"linear_value_head_dim", width / heads},
                  {"linear_num_key_heads", keys.integer("ssm.group_count")},
                  {"linear_key_head_dim", keys.integer("ssm.state_size")},
                  {"linear_conv_kernel_dim", keys.integer("ssm.conv_kernel")},
                  {"linear_heads_by_turns", architecture.name != "qwen3next"}});
  constexpr const char* kShared = "expert_shared_feed_forward_length";
  if (keys.has(kShared)) (*config)["shared_expert_intermediate_size"] = keys.integer(kShared);
}

// The MLP's width; models whose layers all have experts may leave it out.
int64_t mlp_width(const GgufKeys& keys) {
  constexpr const char* kWidth = "feed_forward_length";
  if (keys.has_array(kWidth)) return 0;
  constexpr const char* kOfExperts = "expert_feed_forward_length";
  return keys.integer(!keys.has(kWidth) && keys.has(kOfExperts) ? kOfExperts : kWidth);
}

}  // namespace

// Some files store sampling settings. do_sample is true for a temperature above 0; if other
// settings come without a temperature, it is 1, as for a folder.
std::string gguf_generation_json(const GgufHeader& header) {
  constexpr std::pair<const char*, const char*> kKeys[] = {{"temp", "temperature"},
                                                           {"top_p", "top_p"},
                                                           {"min_p", "min_p"},
                                                           {"penalty_repeat", "repetition_penalty"},
                                                           {"top_k", "top_k"}};
  nlohmann::json settings = nlohmann::json::object();
  for (const auto& [key, name] : kKeys) {
    const std::string own = fmt::format("general.sampling.{}", key);
    if (!header.has(own)) continue;
    if (std::string_view(key) == "top_k") {
      settings[name] =
          std::max<int64_t>(0, header.integer(own, -GgufKeys::kMax, GgufKeys::kMax));  // -1: all
    } else {
      settings[name] = header.number(own);
    }
  }
  const bool only_penalty = settings.size() == settings.count("repetition_penalty");
  settings["do_sample"] = !only_penalty && settings.value("temperature", 1.0) > 0;
  return settings.dump();
}

std::string gguf_config_json(const GgufHeader& header) {
  const GgufArchitecture& architecture = GgufArchitecture::of(header);
  const GgufKeys keys(header, architecture.name);
  const auto embeddings = header.tensors().find("token_embd.weight");
  if (embeddings == header.tensors().end() || embeddings->second.shape.size() != 2) {
    throw InputError(fmt::format(
        "{}: the matrix token_embd.weight is missing; is the file complete?", header.name()));
  }
  const double theta = keys.number_or("rope.freq_base", 10000);
  // Stored as f32 (9.99999974e-06): rounding to six digits restores the intended value.
  const double eps = keys.number("attention.layer_norm_rms_epsilon");
  nlohmann::json config = {
      {"model_type", architecture.model_type},
      {"vocab_size", embeddings->second.shape[0]},
      {"num_hidden_layers", keys.integer("block_count")},
      {"intermediate_size", mlp_width(keys)},
      {"max_position_embeddings", keys.integer("context_length")},
      {"rms_norm_eps", std::stod(fmt::format("{:.6g}", eps))},
      {"rope_theta", theta},
      {"hidden_act", architecture.activation},
      {"hidden_activation", architecture.activation},
      {"tie_word_embeddings", !has_tensor(header, "output.weight")},
      {"attention_bias", has_tensor(header, "blk.0.attn_output.bias")},
      {"eos_token_id", ends_of_text(header)},
  };
  add_heads(keys, architecture, &config);
  add_factors(keys, &config);
  if (architecture.experts) add_experts(keys, &config);
  if (architecture.name == "phi3") add_phi3(keys, &config);
  if (architecture.name == "gemma2") add_gguf_gemma2(keys, &config);
  if (architecture.name == "gemma3") add_gguf_gemma3(keys, &config);
  if (architecture.name == "gpt-oss") add_gpt_oss(keys, &config);
  if (architecture.name == "olmo2") add_olmo2(keys, &config);
  if (keys.has("ssm.inner_size")) add_linear(header, keys, architecture, &config);
  if (architecture.name == "gemma4") {
    add_gguf_gemma4(header, keys, &config);
    return config.dump();
  }
  const nlohmann::json scaling = gguf_rope_scaling(header, keys, theta);
  if (architecture.name == "mistral3") {
    add_mistral3(keys, scaling, &config);
  } else if (!scaling.is_null()) {
    config["rope_scaling"] = scaling;
  }
  return config.dump();
}

}  // namespace fasa
