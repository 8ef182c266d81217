// What config.json says of a model: shapes, rotary parameters, windows, end-of-sequence ids.
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
// linear in one latent vector a token. That vector beside a rotated part is the key of one KV head
// which all query heads share, and the value too; queries are projected into its space.
struct LatentShape {
  int latent = 0;      // kv_lora_rank; 0 = another kind of attention
  int query_rank = 0;  // q_lora_rank; 0 = queries are projected in one go
  int plain = 0;       // qk_nope_head_dim: of a head's query, without rotation
  int value = 0;       // v_head_dim: of a head, once the latent is expanded
};

// MLPs of which a token goes through some, chosen by a router: those of the best softmax, whose
// results are weighed by it. Beside them every token goes through the shared one, if there is any.
struct ExpertShape {
  int count = 0;   // of a layer; 0 = the model has none
  int chosen = 0;  // for each token
  int intermediate = 0;
  int shared_intermediate = 0;              // 0 = none
  bool normalised = false;                  // the weights of the chosen sum to 1
  float scale = 1;                          // of the weights
  std::optional<ClampedGate> clamped = {};  // in place of the model's activation
  // Where more than 1, experts lie in groups, and only those of a token's best ones may be chosen.
  int groups = 1;
  int chosen_groups = 1;

  // Intermediate width that one token reads in a layer, and that of all experts.
  int64_t read_intermediate() const { return int64_t{chosen} * intermediate + shared_intermediate; }
  int64_t all_intermediate() const { return int64_t{count} * intermediate + shared_intermediate; }
};

inline constexpr int kUnrotated = -1;

struct ModelConfig {
  std::string model_type;
  const ModelFamily* family = nullptr;  // of the table
  int vocab_size = 0;
  int hidden = 0;
  int intermediate = 0;
  int layers = 0;
  int query_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  LatentShape mla;  // then head_dim is rotary_dims + latent
  ExpertShape experts;
  std::vector<bool> expert_layers;  // which layers have experts; empty = none
  int rotary_dims = 0;              // the first dimensions of a head
  float norm_eps = 1e-6f;
  Activation activation = Activation::kSilu;
  RopeParameters rope;
  std::optional<RopeParameters> local_rope;  // the second rotation, where there is one
  std::vector<int8_t> layer_rotations;       // of each layer, see rotation(); empty = all the first
  float embedding_scale = 1;
  float residual_scale = 1;  // of what attention and MLP add
  float logits_scale = 1;
  float score_scale = 0;  // of q·k; 0 = 1/sqrt(head_dim)
  // Soft caps: a score or logit x becomes cap · tanh(x / cap); 0 = none.
  float score_cap = 0;
  float logits_cap = 0;
  int64_t max_positions = 0;
  std::vector<float> alibi_slopes;  // [query_heads], empty = none
  std::vector<int> windows;  // sliding window of each layer in tokens, 0 = none; empty = none
  bool tie_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool head_bias = false;  // of the logits
  HeadNorm head_norm = HeadNorm::kNone;
  // Attention and MLP both read the layer's input, and their sum is added to it.
  bool parallel = false;
  bool one_norm = false;         // the MLP reads what the attention reads
  std::vector<int32_t> eos_ids;  // generation_config.json's where it has any, else config.json's
  std::optional<DType> stored_dtype;

  bool has_mla() const { return mla.latent > 0; }
  bool has_sinks() const { return !family->names.sinks.empty(); }
  bool has_experts(int layer) const {
    return !expert_layers.empty() && expert_layers[static_cast<size_t>(layer)];
  }
  int value_dim() const { return has_mla() ? mla.latent : head_dim; }
  // Width of a token's queries, keys and values side by side; with MLA, values are part of the
  // keys.
  int64_t qkv_width() const {
    return int64_t{head_dim} * (query_heads + (has_mla() ? 1 : 2) * kv_heads);
  }
  // Which rotation a layer has: 0 is `rope`, 1 `local_rope`, kUnrotated none.
  int rotation(int layer) const {
    return layer_rotations.empty() ? 0 : layer_rotations[static_cast<size_t>(layer)];
  }
  int rotations() const { return local_rope ? 2 : 1; }
  Geometry geometry() const;
  int64_t parameters() const;
  int64_t attention_parameters() const;  // of one layer
  // Parameters of all layers' MLPs; and those that one token reads, fewer in models with experts.
  int64_t mlp_parameters() const;
  int64_t read_mlp_parameters() const;
  // Rows keep the precision that the model was stored in, whatever its activations are computed in:
  // what a KV cache of the same model takes elsewhere.
  DType row_dtype() const { return stored_dtype.value_or(DType::kBF16); }
  bool is_eos(int32_t id) const;

  // Reads config.json and, where there is one, generation_config.json. Throws InputError naming
  // file and key.
  static ModelConfig load(const std::string& dir);
  static ModelConfig parse(std::string_view json, const std::string& name);
  // Takes the end-of-sequence ids of a generation_config.json instead.
  void parse_generation(std::string_view json, const std::string& name);
};

}  // namespace fasa
