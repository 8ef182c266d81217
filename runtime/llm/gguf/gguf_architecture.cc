#include "runtime/llm/gguf/gguf_architecture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

namespace fasa {
namespace {

constexpr GgufName kTop[] = {{"token_embd", "model.embed_tokens"},
                             {"output_norm", "model.norm"},
                             {"output", "lm_head"},
                             {"per_layer_token_embd", "model.embed_tokens_per_layer"},
                             {"per_layer_model_proj", "model.per_layer_model_projection"},
                             {"per_layer_proj_norm", "model.per_layer_projection_norm"}};
constexpr GgufName kInLayer[] = {
    {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};
constexpr GgufName kQwen3Moe[] = {{"ffn_gate_inp", "mlp.gate"},
                                  {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                  {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                  {"ffn_down_exps", "mlp.experts.*.down_proj"}};
constexpr GgufName kMixtral[] = {{"ffn_gate_inp", "block_sparse_moe.gate"},
                                 {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
                                 {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
                                 {"ffn_down_exps", "block_sparse_moe.experts.*.w2"}};
constexpr GgufName kGptOss[] = {{"post_attention_norm", "post_attention_layernorm"},
                                {"attn_sinks", "self_attn.sinks"},
                                {"ffn_gate_inp", "mlp.router"},
                                {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                {"ffn_down_exps", "mlp.experts.*.down_proj"}};
constexpr GgufName kPhi3[] = {{"attn_qkv", "self_attn.qkv_proj"}, {"ffn_up", "mlp.gate_up_proj"}};
constexpr GgufName kOlmo2[] = {{"post_attention_norm", "post_attention_layernorm"},
                               {"post_ffw_norm", "post_feedforward_layernorm"}};
constexpr GgufName kGemma[] = {{"ffn_norm", "pre_feedforward_layernorm"},
                               {"post_attention_norm", "post_attention_layernorm"},
                               {"post_ffw_norm", "post_feedforward_layernorm"}};

constexpr GgufName kGemma4[] = {{"ffn_norm", "pre_feedforward_layernorm"},
                                {"post_attention_norm", "post_attention_layernorm"},
                                {"post_ffw_norm", "post_feedforward_layernorm"},
                                {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
                                {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
                                {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
                                {"layer_output_scale", "layer_scalar"},
                                {"ffn_gate_inp", "router.proj"},
                                {"ffn_gate_inp.scale", "router.scale"},
                                {"ffn_gate_up_exps", "experts.*.gate_up_proj"},
                                {"ffn_down_exps", "experts.*.down_proj"},
                                {"ffn_down_exps.scale", "router.per_expert_scale"},
                                {"inp_gate", "per_layer_input_gate"},
                                {"proj", "per_layer_projection"},
                                {"post_norm", "post_per_layer_input_norm"}};

constexpr GgufName kQwen35[] = {{"post_attention_norm", "post_attention_layernorm"},
                                {"attn_qkv", "linear_attn.in_proj_qkv"},
                                {"attn_gate", "linear_attn.in_proj_z"},
                                {"ssm_in", "linear_attn.in_proj_qkvz"},
                                {"ssm_ba", "linear_attn.in_proj_ba"},
                                {"ssm_alpha", "linear_attn.in_proj_a"},
                                {"ssm_beta", "linear_attn.in_proj_b"},
                                {"ssm_conv1d", "linear_attn.conv1d"},
                                {"ssm_a", "linear_attn.factor"},
                                {"ssm_dt.bias", "linear_attn.dt_bias"},
                                {"ssm_norm", "linear_attn.norm"},
                                {"ssm_out", "linear_attn.out_proj"},
                                {"ffn_gate_inp", "mlp.gate"},
                                {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                {"ffn_down_exps", "mlp.experts.*.down_proj"},
                                {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                                {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                                {"ffn_down_shexp", "mlp.shared_expert.down_proj"}};

constexpr std::array kArchitectures = {
    GgufArchitecture{.name = "llama", .model_type = "llama", .paired_heads = true},
    GgufArchitecture{.name = "llama",
                     .model_type = "mixtral",
                     .layer_names = kMixtral,
                     .experts = true,
                     .paired_heads = true},
    GgufArchitecture{.name = "mistral3", .model_type = "ministral3", .paired_heads = true},
    GgufArchitecture{.name = "qwen2", .model_type = "qwen2"},
    GgufArchitecture{.name = "qwen3", .model_type = "qwen3"},
    GgufArchitecture{
        .name = "qwen3moe", .model_type = "qwen3_moe", .layer_names = kQwen3Moe, .experts = true},
    GgufArchitecture{
        .name = "gpt-oss", .model_type = "gpt_oss", .layer_names = kGptOss, .experts = true},
    GgufArchitecture{.name = "granite", .model_type = "granite", .paired_heads = true},
    GgufArchitecture{.name = "olmo2", .model_type = "olmo2", .layer_names = kOlmo2},
    GgufArchitecture{.name = "smollm3", .model_type = "smollm3", .paired_heads = true},
    GgufArchitecture{
        .name = "phi3", .model_type = "phi3", .layer_names = kPhi3, .partial_rotary = true},
    GgufArchitecture{.name = "gemma2",
                     .model_type = "gemma2",
                     .layer_names = kGemma,
                     .norms_have_base = true,
                     .activation = "gelu_pytorch_tanh"},
    GgufArchitecture{.name = "gemma3",
                     .model_type = "gemma3_text",
                     .layer_names = kGemma,
                     .norms_have_base = true,
                     .activation = "gelu_pytorch_tanh"},
    GgufArchitecture{.name = "gemma4",
                     .model_type = "gemma4_text",
                     .layer_names = kGemma4,
                     .activation = "gelu_pytorch_tanh"},
    GgufArchitecture{.name = "gemma4",
                     .model_type = "gemma4_text",
                     .layer_names = kGemma4,
                     .experts = true,
                     .activation = "gelu_pytorch_tanh"},
    GgufArchitecture{.name = "qwen35",
                     .model_type = "qwen3_5_text",
                     .layer_names = kQwen35,
                     .norms_have_base = true,
                     .partial_rotary = true},
    GgufArchitecture{.name = "qwen35moe",
                     .model_type = "qwen3_5_moe_text",
                     .layer_names = kQwen35,
                     .experts = true,
                     .norms_have_base = true,
                     .partial_rotary = true},
    GgufArchitecture{.name = "qwen3next",
                     .model_type = "qwen3_next",
                     .layer_names = kQwen35,
                     .experts = true,
                     .norms_have_base = true,
                     .partial_rotary = true}};

std::optional<std::string_view> find(std::span<const GgufName> names, std::string_view file) {
  for (const GgufName& name : names) {
    if (name.file == file) return name.model;
  }
  return std::nullopt;
}

}  // namespace

const GgufArchitecture& GgufArchitecture::of(const GgufHeader& header) {
  constexpr const char* kKey = "general.architecture";
  const std::string_view name = header.text(kKey).value_or("");
  std::vector<std::string_view> names;
  const std::string count = fmt::format("{}.expert_count", name);
  const bool experts = header.integer_or(count, 0, INT32_MAX, 0) > 0;
  for (const GgufArchitecture& known : kArchitectures) {
    if (known.name == name && known.experts == experts) return known;
    if (names.empty() || names.back() != known.name) names.push_back(known.name);
  }
  if (std::find(names.begin(), names.end(), name) != names.end()) {
    header.fail(count, experts ? "0" : "1 or more");
  }
  header.fail(kKey, fmt::format("{}", fmt::join(names, ", ")));
}

std::string GgufArchitecture::model_name(std::string_view tensor) const {
  const std::string other = fmt::format("model.{}", tensor);
  const size_t dot = tensor.rfind('.');
  if (dot == std::string_view::npos) return other;
  const std::string_view kind = tensor.substr(dot);
  if (const auto top = find(kTop, tensor.substr(0, dot))) return fmt::format("{}{}", *top, kind);
  constexpr std::string_view kLayer = "blk.";
  if (!tensor.starts_with(kLayer)) return other;
  const size_t end = tensor.find('.', kLayer.size());
  if (end == std::string_view::npos) return other;
  const std::string_view layer = tensor.substr(kLayer.size(), end - kLayer.size());
  if (const auto whole = find(layer_names, tensor.substr(end + 1))) {
    return fmt::format("model.layers.{}.{}", layer, *whole);
  }
  if (dot <= end) return other;
  const std::string_view part = tensor.substr(end + 1, dot - end - 1);
  auto found = find(layer_names, part);
  if (!found) found = find(kInLayer, part);
  return found ? fmt::format("model.layers.{}.{}{}", layer, *found, kind) : other;
}

}  // namespace fasa
