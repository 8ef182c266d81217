#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numbers>

#include "runtime/base/error.h"
#include "runtime/llm/gguf/gguf_architecture.h"
#include "runtime/llm/gguf/gguf_texts.h"

namespace fasa {
namespace {

constexpr int64_t kMax = int64_t{1} << 30;

// Reads metadata keys with an architecture's prefix.
class Keys {
 public:
  Keys(const GgufHeader& header, std::string_view architecture)
      : header_(header), prefix_(std::string(architecture) + ".") {}
  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  int64_t integer(std::string_view key) const { return header_.integer(name(key), 1, kMax); }
  int64_t integer_or(std::string_view key, int64_t otherwise, int64_t low = 1) const {
    return header_.integer_or(name(key), low, kMax, otherwise);
  }
  bool has(std::string_view key) const { return header_.has(name(key)); }
  bool has_array(std::string_view key) const { return header_.has_array(name(key)); }
  std::vector<bool> flags(std::string_view key) const { return header_.flags(name(key)); }
  // One value for all layers, or one per layer.
  std::vector<int64_t> integers(std::string_view key, size_t layers) const {
    if (!has_array(key)) return std::vector<int64_t>(layers, integer(key));
    const std::vector<double> all = header_.numbers(name(key));
    if (all.size() != layers) fail(key, "one number per layer");
    std::vector<int64_t> values;
    for (const double value : all) {
      if (!(value >= 1 && value <= static_cast<double>(kMax))) fail(key, "numbers from 1");
      values.push_back(static_cast<int64_t>(value));
    }
    return values;
  }
  double number(std::string_view key) const { return header_.number(name(key)); }
  double number_or(std::string_view key, double otherwise) const {
    return header_.number_or(name(key), otherwise);
  }
  std::string text_or(std::string_view key, std::string_view otherwise) const {
    return std::string(header_.text(name(key)).value_or(otherwise));
  }
  [[noreturn]] void fail(std::string_view key, std::string_view allowed) const {
    header_.fail(name(key), allowed);
  }

 private:
  const GgufHeader& header_;
  std::string prefix_;
};

// Llama 3.1 frequencies are stored as divisors: 1 for short wavelengths, the factor for long ones,
// a smooth blend between.
double llama3_divisor(double theta, int64_t pair, int64_t dims, double factor, double original) {
  constexpr double kLow = 1, kHigh = 4;
  const double frequency =
      std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(dims));
  const double turns = original * frequency / (2 * std::numbers::pi);
  if (turns > kHigh) return 1;
  if (turns < kLow) return factor;
  const double smooth = (turns - kLow) / (kHigh - kLow);
  return 1 / ((1 - smooth) / factor + smooth);
}

// Values of an optional tensor; empty if the file lacks it.
std::vector<float> frequency_divisors(const GgufHeader& header, const char* name) {
  const auto found = header.tensors().find(name);
  if (found == header.tensors().end()) return {};
  const GgufTensor& tensor = found->second;
  const int64_t pairs = tensor.shape.back();
  if (tensor.shape.size() != 1 || tensor.block->type != GgmlType::kF32 || pairs > 4096) {
    throw InputError(fmt::format(
        "{}: tensor {}: unsupported type or shape; allowed: one row of F32", header.name(), name));
  }
  std::vector<float> divisors(static_cast<size_t>(pairs));
  std::memcpy(divisors.data(), header.data().data() + tensor.begin, divisors.size() * 4);
  return divisors;
}

nlohmann::json divided_frequencies(const GgufHeader& header, const std::vector<float>& divisors,
                                   double theta) {
  constexpr int64_t kOriginal = 8192;
  constexpr const char* kName = "rope_freqs.weight";
  const auto pairs = static_cast<int64_t>(divisors.size());
  const double factor = static_cast<double>(divisors.back());
  for (int64_t i = 0; i < pairs; ++i) {
    const double expected = llama3_divisor(theta, i, 2 * pairs, factor, kOriginal);
    if (!(std::abs(static_cast<double>(divisors[static_cast<size_t>(i)]) - expected) <=
          1e-3 * expected)) {
      throw InputError(
          fmt::format("{}: tensor {}: unsupported frequency divisors; allowed: those of Llama 3.1, "
                      "for {} original positions",
                      header.name(), kName, kOriginal));
    }
  }
  if (factor == 1) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", 1},
          {"high_freq_factor", 4},
          {"original_max_position_embeddings", kOriginal}};
}

nlohmann::json long_rope(const GgufHeader& header, const Keys& keys,
                         const std::vector<float>& beyond) {
  nlohmann::json scaling = {
      {"rope_type", "longrope"},
      {"long_factor", beyond},
      {"short_factor", frequency_divisors(header, "rope_factors_short.weight")},
      {"original_max_position_embeddings", keys.integer("rope.scaling.original_context_length")}};
  if (keys.has("rope.scaling.attn_factor")) {
    scaling["attention_factor"] = keys.number("rope.scaling.attn_factor");
  }
  return scaling;
}

nlohmann::json rope_scaling(const GgufHeader& header, const Keys& keys, double theta) {
  const std::string kind = keys.text_or("rope.scaling.type", "none");
  const std::vector<float> divisors = frequency_divisors(header, "rope_freqs.weight");
  if (!divisors.empty()) return divided_frequencies(header, divisors, theta);
  const std::vector<float> beyond = frequency_divisors(header, "rope_factors_long.weight");
  if (!beyond.empty()) return long_rope(header, keys, beyond);
  if (kind == "none") return nullptr;
  const double factor = keys.number("rope.scaling.factor");
  if (kind == "linear") return {{"rope_type", "linear"}, {"factor", factor}};
  if (kind == "yarn") {
    // Not stored in files: only gpt-oss was trained with ramps that begin and end between two
    // pairs.
    return {
        {"rope_type", "yarn"},
        {"factor", factor},
        {"truncate", header.text("general.architecture") != "gpt-oss"},
        {"original_max_position_embeddings", keys.integer("rope.scaling.original_context_length")}};
  }
  keys.fail("rope.scaling.type", "none, linear, yarn");
}

std::vector<int64_t> ends_of_text(const GgufHeader& header) {
  std::vector<int64_t> ids;
  for (const char* key : {"eos", "eot", "eom"}) {
    const std::string name = fmt::format("tokenizer.ggml.{}_token_id", key);
    if (header.has(name)) ids.push_back(header.integer(name, 0, kMax));
  }
  return ids;
}

bool has_tensor(const GgufHeader& header, const char* name) {
  return header.tensors().contains(name);
}

void add_heads(const Keys& keys, const GgufArchitecture& architecture, nlohmann::json* config) {
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
void add_factors(const Keys& keys, nlohmann::json* config) {
  constexpr std::pair<const char*, const char*> kFactors[] = {
      {"attention.scale", "attention_multiplier"},
      {"embedding_scale", "embedding_multiplier"},
      {"residual_scale", "residual_multiplier"},
      {"logit_scale", "logits_scaling"}};
  for (const auto& [key, name] : kFactors) {
    if (keys.has(key)) (*config)[name] = keys.number(key);
  }
}

void add_phi3(const Keys& keys, nlohmann::json* config) {
  const int64_t window = keys.integer_or("attention.sliding_window", 0, 0);
  if (window > 0) (*config)["sliding_window"] = window;
}

// In all models of these architectures a token's expert weights sum to 1.
void add_experts(const Keys& keys, nlohmann::json* config) {
  const int64_t count = keys.integer("expert_count");
  (*config)["num_local_experts"] = count;
  (*config)["num_experts_per_tok"] = keys.integer("expert_used_count");
  (*config)["norm_topk_prob"] = true;
  constexpr const char* kWidth = "expert_feed_forward_length";
  if (keys.has(kWidth)) (*config)["moe_intermediate_size"] = keys.integer(kWidth);
}

void add_gpt_oss(const Keys& keys, nlohmann::json* config) {
  (*config)["intermediate_size"] = keys.integer("expert_feed_forward_length");
  (*config)["sliding_window"] = keys.integer("attention.sliding_window");
}

// These values are not stored in files. They are equal for all models of a family, except that the
// largest (recognised by its number of layers) scales scores by hidden / heads.
void add_gemma(const Keys& keys, int64_t largest_layers, nlohmann::json* config) {
  const bool largest = (*config)["num_hidden_layers"] == largest_layers;
  const int64_t share =
      (*config)["hidden_size"].get<int64_t>() / (*config)["num_attention_heads"].get<int64_t>();
  (*config)["query_pre_attn_scalar"] = largest ? share : (*config)["head_dim"].get<int64_t>();
  for (const char* const kind : {"attn", "final"}) {
    const std::string key = fmt::format("{}_logit_softcapping", kind);
    if (keys.has(key)) (*config)[key] = keys.number(key);
  }
}

void add_gemma2(const Keys& keys, nlohmann::json* config) {
  add_gemma(keys, 46, config);
  (*config)["sliding_window"] = keys.integer_or("attention.sliding_window", 4096);
}

// Which layers have a window: a flag per layer, or the distance between those that have none.
void add_windows(const Keys& keys, int64_t usual_pattern, nlohmann::json* config) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  (*config)["sliding_window"] = keys.integer("attention.sliding_window");
  if (!keys.has_array(kPattern)) {
    (*config)["sliding_window_pattern"] = keys.integer_or(kPattern, usual_pattern);
    return;
  }
  nlohmann::json kinds = nlohmann::json::array();
  for (const bool windowed : keys.flags(kPattern)) {
    kinds.push_back(windowed ? "sliding_attention" : "full_attention");
  }
  if (kinds.size() != (*config)["num_hidden_layers"]) keys.fail(kPattern, "one flag per layer");
  (*config)["layer_types"] = kinds;
}

// A model of this architecture that has windows is olmo3.
void add_olmo2(const Keys& keys, nlohmann::json* config) {
  if (!keys.has("attention.sliding_window")) return;
  (*config)["model_type"] = "olmo3";
  add_windows(keys, 4, config);
}

void add_mistral3(const Keys& keys, const nlohmann::json& scaling, nlohmann::json* config) {
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

void add_gemma3(const Keys& keys, nlohmann::json* config) {
  add_gemma(keys, 62, config);
  add_windows(keys, 6, config);
  (*config)["rope_local_base_freq"] = keys.number_or("rope.freq_base_swa", 10000);
}

// Layers with linear attention are those without keys. Value heads lie in another order than in
// folders, except in qwen3next.
void add_linear(const GgufHeader& header, const Keys& keys, const GgufArchitecture& architecture,
                nlohmann::json* config) {
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
int64_t mlp_width(const Keys& keys) {
  constexpr const char* kWidth = "feed_forward_length";
  if (keys.has_array(kWidth)) return 0;
  constexpr const char* kOfExperts = "expert_feed_forward_length";
  return keys.integer(!keys.has(kWidth) && keys.has(kOfExperts) ? kOfExperts : kWidth);
}

// Heads and widths of MLPs may differ by layer. Some values are not stored: they follow from the
// tensors.
void add_gemma4(const GgufHeader& header, const Keys& keys, nlohmann::json* config) {
  add_windows(keys, 6, config);
  const auto layers = (*config)["num_hidden_layers"].get<size_t>();
  const auto kind = [&](size_t layer) -> bool {
    const bool listed = config->contains("layer_types");
    const bool last = layer + 1 == layers;
    const auto every = (*config).value("sliding_window_pattern", size_t{6});
    return last || (listed ? (*config)["layer_types"][layer] == "full_attention"
                           : (layer + 1) % every == 0);
  };
  const int64_t head_dim = keys.integer("attention.key_length");
  const int64_t window_dim = keys.integer_or("attention.key_length_swa", head_dim);
  if (keys.integer_or("attention.value_length_swa", window_dim) != window_dim) {
    keys.fail("attention.value_length_swa", "attention.key_length_swa");
  }
  if (keys.integer_or("rope.dimension_count_swa", window_dim) != window_dim) {
    keys.fail("rope.dimension_count_swa", "attention.key_length_swa");
  }
  nlohmann::json per_layer = nlohmann::json::object();
  bool own_values = false;
  int64_t heads_of_kind[2] = {};  // of the last layer of the kind that has keys
  for (size_t layer = 0; layer < layers; ++layer) {
    const bool full = kind(layer);
    const int64_t dim = full ? head_dim : window_dim;
    int64_t& heads = heads_of_kind[full ? 1 : 0];
    const auto tensor = [&](const char* name) {
      return header.tensors().find(fmt::format("blk.{}.{}.weight", layer, name));
    };
    if (const auto key = tensor("attn_k"); key != header.tensors().end()) {
      heads = key->second.shape.front() / dim;
    }
    per_layer[fmt::to_string(layer)] = {{"head_dim", dim}, {"num_key_value_heads", heads}};
    own_values |= full && tensor("attn_v") != header.tensors().end();
  }
  (*config)["head_dim"] = window_dim;
  (*config)["per_layer_config"] = per_layer;
  (*config)["attention_k_eq_v"] = !own_values;
  const std::vector<int64_t> widths = keys.integers("feed_forward_length", layers);
  (*config)["intermediate_size"] = widths.front();
  (*config)["use_double_wide_mlp"] = widths.back() != widths.front();
  (*config)["num_kv_shared_layers"] = keys.integer_or("attention.shared_kv_layers", 0, 0);
  (*config)["hidden_size_per_layer_input"] =
      keys.integer_or("embedding_length_per_layer_input", 0, 0);
  if (const auto table = header.tensors().find("per_layer_token_embd.weight");
      table != header.tensors().end()) {
    (*config)["vocab_size_per_layer_input"] = table->second.shape.front();
  }
  constexpr const char* kCap = "final_logit_softcapping";
  if (keys.has(kCap)) (*config)[kCap] = keys.number(kCap);
  const bool experts = config->contains("num_local_experts");
  (*config)["enable_moe_block"] = experts;
  if (experts) {
    (*config)["num_experts"] = (*config)["num_local_experts"];
    (*config)["top_k_experts"] = (*config)["num_experts_per_tok"];
  }
  // Divisors of pairs that do not turn are huge.
  const std::vector<float> divisors = frequency_divisors(header, "rope_freqs.weight");
  size_t turning = 0;
  while (turning < divisors.size() && divisors[turning] == 1) ++turning;
  for (size_t i = turning; i < divisors.size(); ++i) {
    if (divisors[i] < 1e20f) {
      throw InputError(
          fmt::format("{}: tensor rope_freqs.weight: unsupported divisors; allowed: 1, then 1e30",
                      header.name()));
    }
  }
  const bool all = divisors.empty();
  // Half a pair more than turn, so that rounding does not lose one.
  const double share =
      all ? 1
          : std::min(1.0, (2 * static_cast<double>(turning) + 1) / static_cast<double>(head_dim));
  (*config)["rope_parameters"] = {
      {"full_attention",
       {{"rope_type", "proportional"},
        {"rope_theta", (*config)["rope_theta"]},
        {"partial_rotary_factor", share}}},
      {"sliding_attention",
       {{"rope_type", "default"}, {"rope_theta", keys.number_or("rope.freq_base_swa", 10000)}}}};
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
      settings[name] = std::max<int64_t>(0, header.integer(own, -kMax, kMax));  // -1: all
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
  const Keys keys(header, architecture.name);
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
  if (architecture.name == "gemma2") add_gemma2(keys, &config);
  if (architecture.name == "gemma3") add_gemma3(keys, &config);
  if (architecture.name == "gpt-oss") add_gpt_oss(keys, &config);
  if (architecture.name == "olmo2") add_olmo2(keys, &config);
  if (keys.has("ssm.inner_size")) add_linear(header, keys, architecture, &config);
  if (architecture.name == "gemma4") {
    add_gemma4(header, keys, &config);
    return config.dump();
  }
  const nlohmann::json scaling = rope_scaling(header, keys, theta);
  if (architecture.name == "mistral3") {
    add_mistral3(keys, scaling, &config);
  } else if (!scaling.is_null()) {
    config["rope_scaling"] = scaling;
  }
  return config.dump();
}

}  // namespace fasa
