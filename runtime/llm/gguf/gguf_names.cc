#include "runtime/llm/gguf/gguf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace fasa {
namespace {

struct Name {
  std::string_view file;
  std::string_view TensorNames::*model;
};

constexpr Name kTop[] = {{"token_embd", &TensorNames::embeddings},
                         {"token_embd_norm", &TensorNames::embedding_norm},
                         {"output_norm", &TensorNames::final_norm},
                         {"per_layer_token_embd", &TensorNames::layer_embeddings},
                         {"per_layer_model_proj", &TensorNames::layer_embedding_projection},
                         {"per_layer_proj_norm", &TensorNames::layer_embedding_norm}};

// If two entries have one name, the first counts that the family has.
constexpr Name kInLayer[] = {{"attn_norm", &TensorNames::attention_norm},
                             {"ffn_norm", &TensorNames::mlp_norm},
                             {"attn_qkv", &TensorNames::qkv},
                             {"attn_q", &TensorNames::query},
                             {"attn_k", &TensorNames::key},
                             {"attn_v", &TensorNames::value},
                             {"attn_output", &TensorNames::output},
                             {"attn_q_norm", &TensorNames::query_norm},
                             {"attn_k_norm", &TensorNames::key_norm},
                             {"attn_sinks", &TensorNames::sinks},
                             {"post_attention_norm", &TensorNames::attention_out_norm},
                             {"post_attention_norm", &TensorNames::mlp_norm},
                             {"post_ffw_norm", &TensorNames::mlp_out_norm},
                             {"ffn_gate", &TensorNames::gate},
                             {"ffn_up", &TensorNames::gate_up},
                             {"ffn_up", &TensorNames::up},
                             {"ffn_down", &TensorNames::down},
                             {"ffn_gate_inp", &TensorNames::router},
                             {"ffn_gate_inp_shexp", &TensorNames::shared_gate},
                             {"post_ffw_norm_1", &TensorNames::beside_mlp_out_norm},
                             {"pre_ffw_norm_2", &TensorNames::beside_norm},
                             {"post_ffw_norm_2", &TensorNames::beside_out_norm},
                             {"layer_output_scale", &TensorNames::layer_factor},
                             {"inp_gate", &TensorNames::layer_input_gate},
                             {"proj", &TensorNames::layer_input_projection},
                             {"post_norm", &TensorNames::layer_input_norm}};
constexpr Name kOfExpert[] = {{"ffn_gate", &TensorNames::expert_gate},
                              {"ffn_up", &TensorNames::expert_up},
                              {"ffn_down", &TensorNames::expert_down}};
constexpr Name kWhole[] = {{"ffn_gate_inp.scale", &TensorNames::router_scale},
                           {"ffn_down_exps.scale", &TensorNames::expert_scale},
                           {"exp_probs_b.bias", &TensorNames::router_correction},
                           {"exp_probs_b", &TensorNames::router_correction}};

// Names of parts that the planner names itself.
struct Fixed {
  std::string_view file, model;
};
constexpr Fixed kLinear[] = {
    {"attn_qkv", "linear_attn.in_proj_qkv"}, {"attn_gate", "linear_attn.in_proj_z"},
    {"ssm_in", "linear_attn.in_proj_qkvz"},  {"ssm_ba", "linear_attn.in_proj_ba"},
    {"ssm_alpha", "linear_attn.in_proj_a"},  {"ssm_beta", "linear_attn.in_proj_b"},
    {"ssm_conv1d", "linear_attn.conv1d"},    {"ssm_norm", "linear_attn.norm"},
    {"ssm_out", "linear_attn.out_proj"}};
constexpr Fixed kLinearWhole[] = {{"ssm_a", "linear_attn.factor"},
                                  {"ssm_dt.bias", "linear_attn.dt_bias"}};
constexpr Fixed kLatent[] = {{"attn_q_a", "self_attn.q_a_proj"},
                             {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                             {"attn_q_b", "self_attn.q_b_proj"},
                             {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                             {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                             {"attn_kv_b", "self_attn.kv_b_proj"},
                             {"attn_k_b", "self_attn.k_b_proj"},
                             {"attn_v_b", "self_attn.v_b_proj"}};

constexpr Fixed kMtpHead[] = {{"nextn.eh_proj", "eh_proj"},
                              {"nextn.embed_tokens", "embed_tokens"},
                              {"nextn.enorm", "enorm"},
                              {"nextn.hnorm", "hnorm"},
                              {"nextn.shared_head_head", "shared_head.head"},
                              {"nextn.shared_head_norm", "shared_head.norm"}};

std::string_view find(std::span<const Name> known, const TensorNames& names,
                      std::string_view file) {
  for (const Name& name : known) {
    if (name.file == file && !(names.*name.model).empty()) return names.*name.model;
  }
  return "";
}

std::string_view find(std::span<const Fixed> known, std::string_view file) {
  for (const Fixed& name : known) {
    if (name.file == file) return name.model;
  }
  return "";
}

std::string expert_name(const TensorNames& names, std::string_view name) {
  constexpr std::string_view kAll = "_exps", kShared = "_shexp";
  if (name == "ffn_gate_up_exps") return fmt::format("{}.*.gate_up_proj", names.experts);
  if (name.ends_with(kAll)) {
    const auto own = find(kOfExpert, names, name.substr(0, name.size() - kAll.size()));
    return own.empty() ? "" : fmt::format("{}.*.{}", names.experts, own);
  }
  if (name.ends_with(kShared)) {
    const auto own = find(kOfExpert, names, name.substr(0, name.size() - kShared.size()));
    return own.empty() ? "" : fmt::format("{}.{}", names.shared, own);
  }
  // Files of 2023 store experts one by one: "ffn_gate.3".
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return "";
  const std::string_view number = name.substr(dot + 1);
  const auto own = find(kOfExpert, names, name.substr(0, dot));
  const bool counts = !number.empty() && std::all_of(number.begin(), number.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
  return own.empty() || !counts ? "" : fmt::format("{}.{}.{}", names.experts, number, own);
}

}  // namespace

std::string_view gguf_top_name(const TensorNames& names, std::string_view name) {
  return find(kTop, names, name);
}

std::string gguf_layer_name(const ModelFamily& family, std::string_view name) {
  if (family.linear != LinearKind::kNone) {
    if (const auto own = find(kLinear, name); !own.empty()) return std::string(own);
  }
  if (family.latent_attention) {
    if (const auto own = find(kLatent, name); !own.empty()) return std::string(own);
  }
  if (family.mtp_head) {
    if (const auto own = find(kMtpHead, name); !own.empty()) return std::string(own);
  }
  if (family.experts != ExpertKind::kNone) {
    if (std::string own = expert_name(family.names, name); !own.empty()) return own;
  }
  std::string own(find(kInLayer, family.names, name));
  const bool of_heads = name == "attn_q_norm" || name == "attn_k_norm";
  if (of_heads && family.head_norm == HeadNorm::kPerHead) own += ".norms.*";
  return own;
}

std::optional<std::string> gguf_whole_name(const ModelFamily& family, std::string_view name) {
  if (family.linear != LinearKind::kNone) {
    if (const auto own = find(kLinearWhole, name); !own.empty()) return std::string(own);
  }
  const auto own = find(kWhole, family.names, name);
  if (own.empty()) return std::nullopt;
  return std::string(own);
}

}  // namespace fasa
