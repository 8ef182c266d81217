// Table of the supported model families: tensor names, order of a layer's parts, kinds of norm and
// activation. Settings that a model's config.json decides are in ModelConfig. A new family is a new
// entry, plus code only for features that no entry has yet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/model_params.h"  // NormKind, Activation, ClampedGate
#include "runtime/base/geometry.h"

namespace fasa {

enum class PositionKind : uint8_t { kRotary, kAlibi };

// Layout of queries, keys and values in files: separate tensors; stacked in one tensor, all queries
// first; or one tensor with query, key and value of each head adjacent.
enum class QkvLayout : uint8_t { kSeparate, kStacked, kByHead };

// Norms of query and key heads: one set of weights for all heads; one per head; or one norm over
// all query heads together, and one over all key heads.
enum class HeadNorm : uint8_t { kNone, kShared, kPerHead, kTogether };

// Which layers have a window if the config has no layer_types.
enum class WindowedLayers : uint8_t {
  kNone,       // none; the config is ignored
  kAll,        // all layers
  kFrom,       // those from max_window_layers on
  kUnrotated,  // those without rotation
  kPattern,    // all but every sliding_window_pattern-th
};

struct WindowRule {
  WindowedLayers layers = WindowedLayers::kNone;
  const char* enabled = nullptr;  // key that must be true; null = always enabled
  int otherwise = 0;              // default in tokens; 0 = none
  int pattern = 0;                // default
  bool last_full = false;         // the last layer never has one
};

// A config value: read from `key`; `otherwise` without a key or if the config lacks it.
struct Choice {
  const char* key = nullptr;
  bool otherwise = false;
};
inline constexpr Choice kAlways{.otherwise = true};

// Which projections have biases: those of queries, keys and values, that of the attention's output,
// those of the MLP, and that to logits.
struct Biases {
  Choice qkv = {}, output = {}, mlp = {}, head = {};
};
constexpr Biases biases_by(Choice attention, Choice mlp = {}) {
  return {.qkv = attention, .output = attention, .mlp = mlp};
}
inline constexpr Biases kAttentionBias = biases_by({.key = "attention_bias"});
inline constexpr Biases kLlamaBiases = biases_by({.key = "attention_bias"}, {.key = "mlp_bias"});

// Key names and rules of a family's experts, if any (expert_config.h).
enum class ExpertKind : uint8_t { kNone, kMixtral, kQwen, kDeepSeek, kGptOss, kGemma4, kGlm4Moe };

// Layers with linear attention, by the layout of their projections in files: one tensor each for
// queries, keys and values, z, b and a; or one for the first two and one for b and a, by key head.
enum class LinearKind : uint8_t { kNone, kSeparate, kByHead };

// Names of the config.json keys for a family's shapes.
struct ConfigKeys {
  const char* hidden = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* query_heads = "num_attention_heads";
  const char* old_hidden = nullptr;  // alternative, if the others are missing
  const char* old_query_heads = nullptr;
  const char* kv_heads = "num_key_value_heads";
  const char* intermediate = "intermediate_size";
  int default_head_dim = 0;                           // default; 0 = hidden / heads
  int default_expansion = 0;                          // default of MLP width / hidden; 0 = required
  const char* positions = "max_position_embeddings";  // null: no limit
  const char* norm_eps = "rms_norm_eps";
  double default_norm_eps = 1e-6;
  const char* activation = "hidden_act";
  const char* default_activation = "silu";
  // Keys of factors; 1 if the key is null or the config lacks it.
  const char* embedding_scale = nullptr;
  const char* residual_scale = nullptr;  // multiplies the outputs of attention and MLP
  const char* logits_divisor = nullptr;
  const char* logits_scale = nullptr;  // multiplies the logits
  double default_logits_scale = 1;
  const char* score_scale = nullptr;  // of q·k, instead of 1/sqrt(head_dim)
  // Key whose value s gives the scale 1/sqrt(s) instead; default_query_scalar if it is missing.
  const char* query_scalar = nullptr;
  int default_query_scalar = 0;
  double fixed_score_scale = 0;  // instead of 1/sqrt(head_dim); 0 = none
};

// Names without ".weight" and ".bias". Names in a layer follow "<root><layers>.<index>.".
struct TensorNames {
  std::string_view root = "model.";
  std::string_view embeddings = "embed_tokens";
  std::string_view embedding_norm = "";  // "" = none
  std::string_view layers = "layers";
  std::string_view final_norm = "norm";
  std::string_view head = "lm_head";                    // without the root
  std::string_view attention_norm = "input_layernorm";  // "" = none
  std::string_view attention_out_norm = "";             // norm of the attention's output; "" = none
  std::string_view mlp_norm = "post_attention_layernorm";  // "" = none
  std::string_view mlp_out_norm = "";
  std::string_view qkv = "";  // if one tensor holds all three
  std::string_view query = "self_attn.q_proj";
  std::string_view key = "self_attn.k_proj";
  std::string_view value = "self_attn.v_proj";
  std::string_view output = "self_attn.o_proj";
  std::string_view sinks = "";  // extra logits of the softmax, one per query head
  std::string_view query_norm = "self_attn.q_norm";
  std::string_view key_norm = "self_attn.k_norm";
  std::string_view gate_up = "";            // if one tensor holds gate, then up
  std::string_view gate = "mlp.gate_proj";  // "" = the MLP has no gate
  std::string_view up = "mlp.up_proj";
  std::string_view down = "mlp.down_proj";
  // Experts' own names follow "<experts>.<index>."; those of the shared expert follow "<shared>.".
  std::string_view router = "mlp.gate";
  std::string_view experts = "mlp.experts";
  // If one tensor holds all experts: [experts, inputs, outputs], biases in "<name>_bias".
  std::string_view expert_gate_up = "";
  std::string_view expert_gate = "gate_proj";
  std::string_view expert_up = "up_proj";
  std::string_view expert_down = "down_proj";
  std::string_view shared = "mlp.shared_experts";
  std::string_view shared_gate = "";  // scales the shared expert
  // Without ".weight": a vector that multiplies the router's input, and one that multiplies the
  // experts' weights.
  std::string_view router_scale = "";
  std::string_view expert_scale = "";
  // Without ".weight": added to the experts' scores where they are chosen, and nowhere else.
  std::string_view router_correction = "";
  // Experts beside the MLP: norms of the MLP's output, of the experts' input and of their output.
  std::string_view beside_mlp_out_norm = "";
  std::string_view beside_norm = "";
  std::string_view beside_out_norm = "";
  // Input per layer, from a second table of embeddings and a projection of the first ones.
  std::string_view layer_embeddings = "";
  std::string_view layer_embedding_projection = "";
  std::string_view layer_embedding_norm = "";
  std::string_view layer_input_gate = "";
  std::string_view layer_input_projection = "";
  std::string_view layer_input_norm = "";
  std::string_view layer_factor = "";  // without ".weight": multiplies a layer's result; "" = none

  constexpr bool gated() const { return !gate_up.empty() || !gate.empty(); }
};

struct ModelFamily {
  std::string_view type;  // config.json's model_type
  NormKind norm = NormKind::kRms;
  float norm_base = 0;  // added to all norm weights
  PositionKind position = PositionKind::kRotary;
  QkvLayout qkv_layout = QkvLayout::kSeparate;
  RotaryLayout rotary_layout = RotaryLayout::kHalf;
  double rotary_share = 1;          // default rotated share of a head's dimensions
  bool proportional_rope = false;   // default kind: RopeKind::kProportional
  bool partial_rotary = false;      // the config may set a smaller share
  double rope_theta = 10000;        // default
  bool local_rope = false;          // layers with a window have their own rotation
  double local_rope_theta = 10000;  // default
  bool unrotated_layers = false;    // the config may list unrotated layers (no_rope_layers)
  bool unrotated_full = false;      // beside layers with a window, those without one are unrotated
  bool query_growth = false;        // see ModelConfig::query_growth
  WindowRule window = {};
  bool root_embedding_scale = false;  // embeddings are multiplied by sqrt(hidden)
  bool latent_attention = false;      // MLA, see LatentShape
  ExpertKind experts = ExpertKind::kNone;
  bool expert_bias = false;                               // on routers too
  Choice normalised_experts = {.key = "norm_topk_prob"};  // of ExpertKind::kQwen
  LinearKind linear = LinearKind::kNone;
  // Rows of the query projection are, per head, those of the query, then those of a gate whose
  // sigmoid scales the head's output.
  bool output_gate = false;
  bool mtp_head = false;  // files may carry a head of multi-token prediction that drafts can use
  HeadNorm head_norm = HeadNorm::kNone;
  Choice has_head_norm = kAlways;
  bool head_norm_bias = false;
  bool value_norm = false;  // value heads have a norm without weights
  Biases biases = {};
  bool tied_embeddings = false;        // default
  bool norm_bias = true;               // for NormKind::kLayer
  Choice parallel = {};                // see ModelConfig::parallel
  bool one_norm_when_parallel = true;  // see ModelConfig::one_norm
  ConfigKeys keys = {};
  TensorNames names = {};

  // Null for an unknown type.
  static const ModelFamily* find(std::string_view type);
  static std::string all_types();  // "a, b, c"
};

}  // namespace fasa
