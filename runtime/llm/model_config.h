// A model's config.json: shapes, rotary parameters, windows, end-of-sequence ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/geometry.h"
#include "runtime/llm/model_family.h"
#include "runtime/llm/rope_parameters.h"

namespace fasa {

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values of all heads are
// linear in one latent vector per token. In the absorbed form that latent, with a rotated part, is
// the key of a single KV head shared by all query heads; the latent is also its value. Queries are
// projected into the latent's space.
struct LatentShape {
  int latent = 0;      // kv_lora_rank; 0 = no MLA
  int query_rank = 0;  // q_lora_rank; 0 = queries have one projection, not two
  int plain = 0;       // qk_nope_head_dim: unrotated dimensions of a query head
  int value = 0;       // v_head_dim: value dimensions of a head, after expansion
};

// Mixture of experts: a router sends each token to a few MLPs, those with the highest softmax
// weights, and sums their weighted results. Every token also goes through the shared expert, if
// there is one.
struct ExpertShape {
  int count = 0;   // experts per layer; 0 = no experts
  int chosen = 0;  // experts per token
  int intermediate = 0;
  int shared_intermediate = 0;              // 0 = none
  bool normalised = false;                  // the chosen experts' weights sum to 1
  float scale = 1;                          // multiplies the weights
  std::optional<ClampedGate> clamped = {};  // instead of the model's activation
  // Above 1: experts form groups, and a token's experts come from its best groups only.
  int groups = 1;
  int chosen_groups = 1;

  // Intermediate width that one token reads in a layer, and the width of all experts.
  int64_t read_intermediate() const { return int64_t{chosen} * intermediate + shared_intermediate; }
  int64_t all_intermediate() const { return int64_t{count} * intermediate + shared_intermediate; }
};

inline constexpr int kUnrotated = -1;

struct ModelConfig {
  std::string model_type;
  const ModelFamily* family = nullptr;  // points into the table
  int vocab_size = 0;
  int hidden = 0;
  int intermediate = 0;
  int layers = 0;
  int query_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  LatentShape mla;  // if used, head_dim is rotary_dims + latent
  ExpertShape experts;
  std::vector<bool> expert_layers;  // which layers have experts; empty = none
  int rotary_dims = 0;              // rotated dimensions, the first ones of a head
  float norm_eps = 1e-6f;
  Activation activation = Activation::kSilu;
  RopeParameters rope;
  std::optional<RopeParameters> local_rope;  // the second rotation, if any
  std::vector<int8_t> layer_rotations;       // per layer, see rotation(); empty = all 0
  float embedding_scale = 1;
  float residual_scale = 1;  // multiplies the outputs of attention and MLP
  float logits_scale = 1;
  // Llama 4's scale of queries: at position p, 1 + beta · ln(1 + ⌊p / positions⌋).
  QueryGrowth query_growth;
  float score_scale = 0;  // multiplies q·k; 0 = 1/sqrt(head_dim)
  // Soft caps: a score or logit x becomes cap · tanh(x / cap); 0 = none.
  float score_cap = 0;
  float logits_cap = 0;
  int64_t max_positions = 0;
  std::vector<float> alibi_slopes;  // [query_heads], empty = none
  std::vector<int> windows;  // sliding window per layer, tokens; 0 = none; empty = no windows
  bool tie_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool head_bias = false;  // of the logits
  HeadNorm head_norm = HeadNorm::kNone;
  // Attention and MLP both read the layer's input; both results are added to it.
  bool parallel = false;
  bool one_norm = false;         // the MLP uses the attention's norm
  std::vector<int32_t> eos_ids;  // from generation_config.json if it has any, else config.json
  std::optional<DType> stored_dtype;

  bool has_mla() const { return mla.latent > 0; }
  bool has_sinks() const { return !family->names.sinks.empty(); }
  bool has_experts(int layer) const {
    return !expert_layers.empty() && expert_layers[static_cast<size_t>(layer)];
  }
  int value_dim() const { return has_mla() ? mla.latent : head_dim; }
  // Width of a token's queries, keys and values together; with MLA the values are part of the keys.
  int64_t qkv_width() const {
    return int64_t{head_dim} * (query_heads + (has_mla() ? 1 : 2) * kv_heads);
  }
  // A layer's rotation: 0 is `rope`, 1 is `local_rope`, or kUnrotated.
  int rotation(int layer) const {
    return layer_rotations.empty() ? 0 : layer_rotations[static_cast<size_t>(layer)];
  }
  int rotations() const { return local_rope ? 2 : 1; }
  Geometry geometry() const;
  int64_t parameters() const;
  int64_t attention_parameters() const;  // per layer
  // Parameters of all layers' MLPs, and the fewer that one token reads in a model with experts.
  int64_t mlp_parameters() const;
  int64_t read_mlp_parameters() const;
  // Dtype of the KV rows: the precision in which the model was stored, whatever the dtype of
  // activations. Matches the KV cache of other engines.
  DType row_dtype() const { return stored_dtype.value_or(DType::kBF16); }
  bool is_eos(int32_t id) const;

  // Reads config.json and, if present, generation_config.json. Throws InputError naming file and
  // key.
  static ModelConfig load(const std::string& dir);
  static ModelConfig parse(std::string_view json, const std::string& name);
  // Replaces the end-of-sequence ids by those of a generation_config.json.
  void parse_generation(std::string_view json, const std::string& name);
};

}  // namespace fasa
