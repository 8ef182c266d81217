#include "runtime/llm/gguf/gguf_architecture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/error.h"

namespace fasa {
namespace {

constexpr GgufExperts kNormalised = GgufExperts::kNormalised;
constexpr GgufExperts kPlain = GgufExperts::kPlain;

constexpr std::array kArchitectures = {
    GgufArchitecture{.name = "llama", .model_type = "llama", .paired_heads = true},
    GgufArchitecture{
        .name = "llama", .model_type = "mixtral", .experts = kNormalised, .paired_heads = true},
    GgufArchitecture{.name = "mistral3", .model_type = "ministral3", .paired_heads = true},
    GgufArchitecture{.name = "qwen2", .model_type = "qwen2"},
    GgufArchitecture{.name = "qwen2moe", .model_type = "qwen2_moe", .experts = kPlain},
    GgufArchitecture{.name = "qwen3", .model_type = "qwen3"},
    GgufArchitecture{.name = "qwen3moe", .model_type = "qwen3_moe", .experts = kNormalised},
    GgufArchitecture{.name = "qwen35", .model_type = "qwen3_5_text", .norms_have_base = true},
    GgufArchitecture{.name = "qwen35moe",
                     .model_type = "qwen3_5_moe_text",
                     .experts = kNormalised,
                     .norms_have_base = true},
    GgufArchitecture{.name = "qwen3next",
                     .model_type = "qwen3_next",
                     .experts = kNormalised,
                     .norms_have_base = true},
    GgufArchitecture{.name = "gpt-oss", .model_type = "gpt_oss", .experts = kNormalised},
    GgufArchitecture{.name = "granite", .model_type = "granite", .paired_heads = true},
    GgufArchitecture{.name = "olmo2", .model_type = "olmo2"},
    GgufArchitecture{.name = "exaone4", .model_type = "exaone4"},
    GgufArchitecture{.name = "glm4", .model_type = "glm4"},
    GgufArchitecture{.name = "glm4moe", .model_type = "glm4_moe", .experts = kNormalised},
    GgufArchitecture{.name = "cohere2", .model_type = "cohere2"},
    GgufArchitecture{.name = "seed_oss", .model_type = "seed_oss"},
    GgufArchitecture{.name = "starcoder2", .model_type = "starcoder2"},
    GgufArchitecture{.name = "smollm3", .model_type = "smollm3", .paired_heads = true},
    GgufArchitecture{.name = "phi2", .model_type = "phi"},
    GgufArchitecture{.name = "phi3", .model_type = "phi3"},
    GgufArchitecture{.name = "gemma2", .model_type = "gemma2", .norms_have_base = true},
    GgufArchitecture{.name = "gemma3", .model_type = "gemma3_text", .norms_have_base = true},
    GgufArchitecture{.name = "gemma4", .model_type = "gemma4_text"},
    GgufArchitecture{.name = "gemma4", .model_type = "gemma4_text", .experts = kNormalised},
    GgufArchitecture{.name = "ernie4_5", .model_type = "ernie4_5"},
    GgufArchitecture{.name = "gptneox", .model_type = "gpt_neox"},
    GgufArchitecture{.name = "stablelm", .model_type = "stablelm"},
    GgufArchitecture{.name = "bloom", .model_type = "bloom"},
    GgufArchitecture{.name = "mpt", .model_type = "mpt"},
    GgufArchitecture{.name = "deepseek2", .model_type = "deepseek_v2", .experts = kPlain}};

// Files that are no language models, by a value of general.type or general.architecture.
struct OtherKind {
  std::string_view value;
  std::string_view text;
};
constexpr std::string_view kProjector =
    "a vision or audio projector; give the model's own GGUF file, which lies beside it";
constexpr std::string_view kImportance =
    "an importance matrix, an input of quantisation; give the model's own GGUF file";
constexpr OtherKind kOtherKinds[] = {
    {"clip", kProjector},
    {"mmproj", kProjector},
    {"adapter", "a LoRA adapter; merge it into its model, adapters are not applied"},
    {"controlvector", "a control vector; these are not applied"},
    {"imatrix", kImportance}};

void require_model(const GgufHeader& header) {
  for (const char* const key : {"general.type", "general.architecture"}) {
    if (header.has_array(key)) continue;
    const auto value = header.text(key);
    for (const OtherKind& other : kOtherKinds) {
      if (value == other.value) {
        throw InputError(fmt::format("{}: the file is {}", header.name(), other.text));
      }
    }
  }
  if (header.has("imatrix.datasets") || header.has("imatrix.chunk_count")) {
    throw InputError(fmt::format("{}: the file is {}", header.name(), kImportance));
  }
}

// Names of these parts stay as they are.
bool is_other_part(std::string_view tensor) {
  constexpr std::string_view kParts[] = {"v.", "a.", "mm.", "resampler."};
  return std::any_of(std::begin(kParts), std::end(kParts),
                     [&](std::string_view part) { return tensor.starts_with(part); });
}

bool has_tensor_with(const GgufHeader& header, const std::string& prefix) {
  const auto next = header.tensors().lower_bound(prefix);
  return next != header.tensors().end() && next->first.starts_with(prefix);
}

// Tensor names of GGUF files: the same for all architectures, apart from a few that have two
// meanings.
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

// The family's name of a tensor outside layers, without root; empty if there is none. `name`:
// without ".weight" and ".bias".
std::string_view gguf_top_name(const TensorNames& names, std::string_view name) {
  return find(kTop, names, name);
}

// The same of a tensor in a layer; for an expert's "<experts>.*.<name>" or, for files that store
// experts one by one ("ffn_gate.3"), "<experts>.3.<name>".
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

// Names of which the file has the whole, end included.
std::optional<std::string> gguf_whole_name(const ModelFamily& family, std::string_view name) {
  if (family.linear != LinearKind::kNone) {
    if (const auto own = find(kLinearWhole, name); !own.empty()) return std::string(own);
  }
  const auto own = find(kWhole, family.names, name);
  if (own.empty()) return std::nullopt;
  return std::string(own);
}

}  // namespace

const GgufArchitecture& GgufArchitecture::of(const GgufHeader& header) {
  constexpr const char* kKey = "general.architecture";
  require_model(header);
  const std::string_view name = header.text(kKey).value_or("");
  std::vector<std::string_view> names;
  const std::string count = fmt::format("{}.expert_count", name);
  const bool experts = header.integer_or(count, 0, INT32_MAX, 0) > 0;
  for (const GgufArchitecture& known : kArchitectures) {
    if (known.name == name && (known.experts != GgufExperts::kNone) == experts) return known;
    if (names.empty() || names.back() != known.name) names.push_back(known.name);
  }
  if (std::find(names.begin(), names.end(), name) != names.end()) {
    header.fail(count, experts ? "0" : "1 or more");
  }
  header.fail(kKey, fmt::format("{}", fmt::join(names, ", ")));
}

const ModelFamily& GgufArchitecture::family() const { return *ModelFamily::find(model_type); }

int64_t GgufArchitecture::layers(const GgufHeader& header) const {
  const auto key = [&](std::string_view of) { return fmt::format("{}.{}", name, of); };
  const std::string total = key("block_count");
  int64_t layers = header.integer(total, 1, int64_t{kMaxGgufTensors});  // each has some
  int64_t predicting = header.integer_or(key("nextn_predict_layers"), 0, 4096, 0);
  for (; layers > 1; --layers) {
    const std::string prefix = fmt::format("blk.{}.", layers - 1);
    const bool predicts = has_tensor_with(header, prefix + "nextn.");
    // Some files keep the count of layers that they leave out.
    if (!predicts && (predicting == 0 || has_tensor_with(header, prefix))) break;
    if (predicting > 0) --predicting;
  }
  return layers;
}

int64_t GgufArchitecture::predicting_layers(const GgufHeader& header) const {
  const int64_t first = layers(header);
  int64_t count = 0;
  while (has_tensor_with(header, fmt::format("blk.{}.nextn.", first + count))) ++count;
  return count;
}

std::string GgufArchitecture::model_name(std::string_view tensor) const {
  if (is_other_part(tensor)) return std::string(tensor);
  const ModelFamily& family = this->family();
  const TensorNames& names = family.names;
  const std::string other = fmt::format("{}{}", names.root, tensor);
  const size_t dot = tensor.rfind('.');
  if (dot == std::string_view::npos) return other;
  const std::string_view kind = tensor.substr(dot), stem = tensor.substr(0, dot);
  if (stem == "output") return fmt::format("{}{}", names.head, kind);
  if (const auto top = gguf_top_name(names, stem); !top.empty()) {
    return fmt::format("{}{}{}", names.root, top, kind);
  }
  constexpr std::string_view kLayer = "blk.";
  if (!tensor.starts_with(kLayer)) return other;
  const size_t end = tensor.find('.', kLayer.size());
  const std::string_view layer = tensor.substr(kLayer.size(), end - kLayer.size());
  const std::string prefix = fmt::format("{}{}.{}.", names.root, names.layers, layer);
  if (end == std::string_view::npos) return other;
  if (const auto whole = gguf_whole_name(family, tensor.substr(end + 1))) return prefix + *whole;
  if (dot <= end) return other;
  const std::string own = gguf_layer_name(family, tensor.substr(end + 1, dot - end - 1));
  return own.empty() ? other : fmt::format("{}{}{}", prefix, own, kind);
}

}  // namespace fasa
