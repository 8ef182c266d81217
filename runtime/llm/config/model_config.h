// A model's config.json: shapes, rotary parameters, windows, end-of-sequence ids.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/geometry.h"
#include "runtime/base/linear_shape.h"
#include "runtime/llm/config/rope_parameters.h"
#include "runtime/llm/family/model_family.h"

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
  bool sigmoid = false;                     // of scores, instead of their softmax
  float scale = 1;                          // multiplies the weights
  std::optional<ClampedGate> clamped = {};  // instead of the model's activation
  bool beside_mlp = false;                  // layers with experts have an MLP too
  // Above 1: experts form groups, and a token's experts come from its best groups only.
  int groups = 1;
  int chosen_groups = 1;

  // Intermediate width that one token reads in a layer, and the width of all experts.
  int64_t read_intermediate() const { return int64_t{chosen} * intermediate + shared_intermediate; }
  int64_t all_intermediate() const { return int64_t{count} * intermediate + shared_intermediate; }
};

inline constexpr int kUnrotated = -1;

// Larger than any known model, and small enough that products of two widths stay below 2^63.
inline constexpr int64_t kMaxWidth = int64_t{1} << 24;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadDim = 4096;

struct ModelConfig {
  std::string model_type;
  const ModelFamily* family = nullptr;  // points into the table
  int vocab_size = 0;
  int hidden = 0;
  int intermediate = 0;
  int layers = 0;
  int predicting_layers = 0;  // of multi-token prediction, behind the others; see mtp_config.h
  // Above 0: a head of multi-token prediction (mtp_config.h), which reads tokens and another
  // model's hidden states; the number of its layer, in files that count it behind that model's.
  int mtp_layer = 0;
  bool is_mtp_head() const { return mtp_layer > 0; }
  int query_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  // Heads of layers with a window if they differ from the others'; kv_heads 0 = they do not.
  HeadShape window_heads;
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
  bool keys_as_values = false;      // in layers without a window; values have their norm
  // The last layers have queries alone, and attend to keys and values of the last layer of their
  // kind before them.
  int shared_layers = 0;
  bool wide_shared_mlp = false;  // their MLPs are twice as wide
  int layer_input = 0;           // width of the input per layer; 0 = none
  int64_t layer_inputs() const { return int64_t{layers} * layer_input; }
  int layer_vocab_size = 0;  // rows of its table
  std::vector<int> windows;  // sliding window per layer, tokens; 0 = none; empty = no windows
  LinearShape linear;        // no layers: none; dtype: see Model::load
  std::vector<bool> linear_layers;  // which layers have linear attention; empty = none
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
  bool is_linear(int layer) const {
    return !linear_layers.empty() && linear_layers[static_cast<size_t>(layer)];
  }
  // Layers with attention are counted among themselves by the KV cache.
  int attention_layers() const { return layers - linear.layers; }
  int attention_index(int layer) const;  // layers with attention before `layer`
  int attention_layer(int index) const;  // its inverse
  int value_dim() const { return has_mla() ? mla.latent : head_dim; }
  int window(int layer) const { return windows.empty() ? 0 : windows[static_cast<size_t>(layer)]; }
  HeadShape heads(int layer) const {
    if (window_heads.kv_heads > 0 && window(layer) > 0) return window_heads;
    return {kv_heads, head_dim, value_dim(), rotary_dims};
  }
  int max_head_dim() const { return std::max(head_dim, window_heads.key_dim); }
  bool is_shared(int layer) const { return layer >= layers - shared_layers; }
  // The layer whose keys and values a layer attends to.
  int kv_layer(int layer) const { return kv_layer_of(windows, layers - shared_layers, layer); }
  bool takes_keys_as_values(int layer) const { return keys_as_values && window(layer) == 0; }
  int mlp_width(int layer) const {
    return intermediate * (wide_shared_mlp && is_shared(layer) ? 2 : 1);
  }
  int max_mlp_width() const { return mlp_width(layers - 1); }
  // Width of a token's queries, keys and values together; with MLA the values are part of the keys.
  // With linear attention: of the convolution.
  int64_t qkv_width(int layer) const {
    if (is_linear(layer)) return linear.channels();
    const HeadShape own = heads(layer);
    return int64_t{own.key_dim} * (query_heads + (has_mla() ? 1 : 2) * own.kv_heads);
  }
  int64_t max_qkv_width() const;
  // A layer's rotation: 0 is `rope`, 1 is `local_rope`, or kUnrotated.
  int rotation(int layer) const {
    return layer_rotations.empty() ? 0 : layer_rotations[static_cast<size_t>(layer)];
  }
  int rotations() const { return local_rope ? 2 : 1; }
  int rotary_dims_of(int rotation) const {
    return rotation == 1 && window_heads.kv_heads > 0 ? window_heads.rotary_dims : rotary_dims;
  }
  Geometry geometry() const;
  int64_t parameters() const;
  int64_t attention_parameters(int layer) const;
  // Parameters of all layers' MLPs, and the fewer that one token reads in a model with experts.
  int64_t mlp_parameters() const;
  int64_t read_mlp_parameters() const;
  // Dtype of weights and activations, unless the user chooses another: f32 below 1 B parameters.
  DType auto_dtype() const;
  // Dtype of the KV rows: the precision in which the model was stored, whatever the dtype of
  // activations. Matches the KV cache of other engines.
  DType row_dtype() const { return stored_dtype.value_or(DType::kBF16); }
  bool is_eos(int32_t id) const;

  // Reads config.json and, if present, generation_config.json. Throws InputError naming file and
  // key.
  // `context`: tokens of the longest context to run, 0 = max_positions; longrope takes its short
  // divisors where that does not exceed the original context.
  static ModelConfig load(const std::string& dir, int64_t context = 0);
  static ModelConfig parse(std::string_view json, const std::string& name, int64_t context = 0);
  // Replaces the end-of-sequence ids by those of a generation_config.json.
  void parse_generation(std::string_view json, const std::string& name);
};

}  // namespace fasa
