#include "runtime/llm/gguf/gguf_config_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace fasa {
namespace {

// These values are not stored in files. They are equal for all models of a family, except that the
// largest (recognised by its number of layers) scales scores by hidden / heads.
void add_gemma(const GgufKeys& keys, int64_t largest_layers, nlohmann::json* config) {
  const bool largest = (*config)["num_hidden_layers"] == largest_layers;
  const int64_t share =
      (*config)["hidden_size"].get<int64_t>() / (*config)["num_attention_heads"].get<int64_t>();
  (*config)["query_pre_attn_scalar"] = largest ? share : (*config)["head_dim"].get<int64_t>();
  for (const char* const kind : {"attn", "final"}) {
    const std::string key = fmt::format("{}_logit_softcapping", kind);
    if (keys.has(key)) (*config)[key] = keys.number(key);
  }
}

// Heads differ by kind of layer; their counts follow from the tensors.
void add_heads_by_layer(const GgufHeader& header, const GgufKeys& keys, nlohmann::json* config) {
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
}

void add_rotations(const GgufHeader& header, const GgufKeys& keys, nlohmann::json* config) {
  const auto head_dim = static_cast<double>(keys.integer("attention.key_length"));
  // Divisors of pairs that do not turn are huge.
  const std::vector<float> divisors = gguf_frequency_divisors(header, "rope_freqs.weight");
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
  const double share = all ? 1 : std::min(1.0, (2 * static_cast<double>(turning) + 1) / head_dim);
  (*config)["rope_parameters"] = {
      {"full_attention",
       {{"rope_type", "proportional"},
        {"rope_theta", (*config)["rope_theta"]},
        {"partial_rotary_factor", share}}},
      {"sliding_attention",
       {{"rope_type", "default"}, {"rope_theta", keys.number_or("rope.freq_base_swa", 10000)}}}};
}

}  // namespace

void add_gguf_windows(const GgufKeys& keys, int64_t usual_pattern, nlohmann::json* config,
                      int64_t usual_window) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  constexpr const char* kWindow = "attention.sliding_window";
  (*config)["sliding_window"] =
      usual_window == 0 ? keys.integer(kWindow) : keys.integer_or(kWindow, usual_window);
  if (!keys.has_array(kPattern)) {
    (*config)["sliding_window_pattern"] = keys.integer_or(kPattern, usual_pattern);
    return;
  }
  nlohmann::json kinds = nlohmann::json::array();
  const auto layers = (*config)["num_hidden_layers"].get<size_t>();
  for (const bool windowed : keys.flags(kPattern, layers)) {
    kinds.push_back(windowed ? "sliding_attention" : "full_attention");
  }
  (*config)["layer_types"] = kinds;
}

void add_gguf_gemma2(const GgufKeys& keys, nlohmann::json* config) {
  add_gemma(keys, 46, config);
  (*config)["sliding_window"] = keys.integer_or("attention.sliding_window", 4096);
}

void add_gguf_gemma3(const GgufKeys& keys, nlohmann::json* config) {
  add_gemma(keys, 62, config);
  add_gguf_windows(keys, 6, config);
  (*config)["rope_local_base_freq"] = keys.number_or("rope.freq_base_swa", 10000);
}

void add_gguf_gemma4(const GgufHeader& header, const GgufKeys& keys, nlohmann::json* config) {
  add_gguf_windows(keys, 6, config);
  add_heads_by_layer(header, keys, config);
  const auto layers = (*config)["num_hidden_layers"].get<size_t>();
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
  add_rotations(header, keys, config);
}

}  // namespace fasa
