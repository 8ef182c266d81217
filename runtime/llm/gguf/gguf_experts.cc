#include "runtime/llm/gguf/gguf_config_parts.h"

#include <fmt/format.h>

namespace fasa {
namespace {

enum Gating : int64_t { kUnset = 0, kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3 };

// The function that makes weights of scores; families have one each.
void check_gating(const GgufKeys& keys, const ModelFamily& family) {
  constexpr const char* kKey = "expert_gating_func";
  const int64_t given = keys.integer_or(kKey, kUnset, kUnset);
  const bool sigmoid = !family.names.router_correction.empty();
  // The softmax of the chosen scores equals the chosen weights, made to sum to 1.
  const bool of_chosen = family.experts == ExpertKind::kGptOss && given == kSoftmaxOfChosen;
  if (given == kUnset || of_chosen || given == (sigmoid ? kSigmoid : kSoftmax)) return;
  keys.fail(kKey,
            sigmoid ? "2 (sigmoid) for this architecture" : "1 (softmax) for this architecture");
}

void add_shared(const GgufKeys& keys, const ModelFamily& family, nlohmann::json* config) {
  constexpr const char* kWidth = "expert_shared_feed_forward_length";
  const int64_t width = keys.integer_or(kWidth, 0, 0);
  if (family.names.shared_gate.empty()) return;
  (*config)["shared_expert_intermediate_size"] =
      width > 0 ? width : keys.integer("feed_forward_length");
}

// Layers with an MLP instead of experts.
void add_dense_layers(const GgufHeader& header, nlohmann::json* config) {
  nlohmann::json dense = nlohmann::json::array();
  for (int layer = 0; layer < (*config)["num_hidden_layers"]; ++layer) {
    const std::string router = fmt::format("blk.{}.ffn_gate_inp.weight", layer);
    if (!header.tensors().contains(router)) dense.push_back(layer);
  }
  (*config)["mlp_only_layers"] = dense;
}

// Layers, groups and factors of DeepSeek's models and of those after them.
void add_grouped(const GgufKeys& keys, nlohmann::json* config) {
  (*config)["n_routed_experts"] = keys.integer("expert_count");
  (*config)["n_shared_experts"] = keys.integer_or("expert_shared_count", 0, 0);
  (*config)["first_k_dense_replace"] = keys.integer_or("leading_dense_block_count", 0, 0);
  const double scale = keys.number_or("expert_weights_scale", 1);
  (*config)["routed_scaling_factor"] = scale == 0 ? 1 : scale;
  const int64_t groups = keys.integer_or("expert_group_count", 1, 0);
  if (groups <= 1) return;
  (*config)["topk_method"] = "group_limited_greedy";
  (*config)["n_group"] = groups;
  (*config)["topk_group"] = keys.integer("expert_group_used_count");
}

}  // namespace

void add_gguf_experts(const GgufHeader& header, const GgufKeys& keys,
                      const GgufArchitecture& architecture, nlohmann::json* config) {
  const ModelFamily& family = architecture.family();
  const int64_t chosen = keys.integer("expert_used_count");
  const bool usual = architecture.experts == GgufExperts::kNormalised;
  const bool normalised = keys.boolean_or("expert_weights_norm", usual);
  const bool grouped =
      family.experts == ExpertKind::kDeepSeek || family.experts == ExpertKind::kGlm4Moe;
  const bool either = family.experts == ExpertKind::kQwen || family.experts == ExpertKind::kGlm4Moe;
  if (normalised != usual && !either) {
    keys.fail("expert_weights_norm",
              usual ? "true for this architecture" : "false for this architecture");
  }
  (*config)["num_local_experts"] = keys.integer("expert_count");
  (*config)["num_experts_per_tok"] = chosen;
  (*config)["norm_topk_prob"] = normalised;
  constexpr const char* kWidth = "expert_feed_forward_length";
  if (keys.has(kWidth)) {
    (*config)["moe_intermediate_size"] = keys.integer(kWidth);
  } else if (family.experts == ExpertKind::kQwen) {
    (*config)["moe_intermediate_size"] = keys.integer("feed_forward_length") / chosen;
  }
  check_gating(keys, family);
  if (family.experts == ExpertKind::kQwen) add_dense_layers(header, config);
  add_shared(keys, family, config);
  if (grouped) add_grouped(keys, config);
}

void add_gguf_latent(const GgufHeader& header, const GgufKeys& keys, nlohmann::json* config) {
  const int64_t rotated = keys.integer("rope.dimension_count");
  // Newer files give the lengths of the latent form first.
  const char* const key =
      keys.has("attention.key_length_mla") ? "attention.key_length_mla" : "attention.key_length";
  const char* const value = keys.has("attention.value_length_mla") ? "attention.value_length_mla"
                                                                   : "attention.value_length";
  for (const char* const other :
       {"attention.key_length", "attention.value_length", "attention.head_count_kv"}) {
    keys.has(other);  // follow from the rest
  }
  const int64_t length = keys.integer(key);
  if (length <= rotated) keys.fail(key, "more than rope.dimension_count");
  (*config)["kv_lora_rank"] = keys.integer("attention.kv_lora_rank");
  // Small models say a rank that they do not have.
  const int64_t rank = keys.integer_or("attention.q_lora_rank", 0, 0);
  if (header.tensors().contains("blk.0.attn_q_a.weight")) (*config)["q_lora_rank"] = rank;
  (*config)["head_dim"] = rotated;
  (*config)["qk_rope_head_dim"] = rotated;
  (*config)["qk_nope_head_dim"] = length - rotated;
  (*config)["v_head_dim"] = keys.integer(value);
}

}  // namespace fasa
