// What distinguishes the model families that run here, as one table: names of tensors, order of a
// layer's parts, kinds of norm and activation. What a model's own config.json decides lies in
// ModelConfig. A new family is a new entry, and code only for what no entry can say yet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/model_params.h"  // NormKind, Activation, ClampedGate
#include "runtime/base/geometry.h"

namespace fasa {

enum class PositionKind : uint8_t { kRotary, kAlibi };

// Where queries, keys and values lie in the files: in tensors of their own; stacked in one, all
// queries first; or in one that holds query, key and value of a head beside each other.
enum class QkvLayout : uint8_t { kSeparate, kStacked, kByHead };

// Norms of each query and key head: one for all heads, or one a head; or all query heads together
// and all key heads, as if they were one wide head.
enum class HeadNorm : uint8_t { kNone, kShared, kPerHead, kTogether };

// Which layers have a window where the config has no layer_types.
enum class WindowedLayers : uint8_t {
  kNone,       // none; the config is ignored
  kAll,        // without layer_types, too
  kFrom,       // those from max_window_layers on
  kUnrotated,  // those without rotation
  kPattern,    // all but every sliding_window_pattern-th
};

struct WindowRule {
  WindowedLayers layers = WindowedLayers::kNone;
  const char* enabled = nullptr;  // the key that must be true; null = always
  int otherwise = 0;              // tokens where the config does not say; 0 = none
  int pattern = 0;                // where the config does not say
};

// What the config says under `key`, and where there is no key or it says nothing, `otherwise`.
struct Choice {
  const char* key = nullptr;
  bool otherwise = false;
};

// How a family's layers of experts are described, where it has any (expert_config.h).
enum class ExpertKind : uint8_t { kNone, kMixtral, kQwen, kDeepSeek, kGptOss };

// Where a config.json says a family's shapes.
struct ConfigKeys {
  const char* hidden = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* query_heads = "num_attention_heads";
  const char* old_hidden = nullptr;  // taken where the others are missing
  const char* old_query_heads = nullptr;
  const char* kv_heads = "num_key_value_heads";
  const char* intermediate = "intermediate_size";
  int default_head_dim = 0;   // where the config does not say; 0 = a head's share of hidden
  int default_expansion = 0;  // of the MLP, where the config does not say; 0 = it must
  const char* positions = "max_position_embeddings";  // null: the model has no limit
  const char* norm_eps = "rms_norm_eps";
  double default_norm_eps = 1e-6;
  const char* activation = "hidden_act";
  const char* default_activation = "silu";
  // Factors, 1 where the key is null or the config does not say.
  const char* embedding_scale = nullptr;
  const char* residual_scale = nullptr;  // of what attention and MLP add
  const char* logits_divisor = nullptr;
  const char* score_scale = nullptr;  // of q·k, instead of 1/sqrt(head_dim)
  // 1/sqrt of this instead, and where the config does not say, of default_query_scalar.
  const char* query_scalar = nullptr;
  int default_query_scalar = 0;
};

// Names without ".weight" and ".bias". Those of a layer follow "<root><layers>.<index>.".
struct TensorNames {
  std::string_view root = "model.";
  std::string_view embeddings = "embed_tokens";
  std::string_view embedding_norm = "";  // "" = none
  std::string_view layers = "layers";
  std::string_view final_norm = "norm";
  std::string_view head = "lm_head";                       // without the root
  std::string_view attention_norm = "input_layernorm";     // "" = none
  std::string_view attention_out_norm = "";                // of what the attention adds; "" = none
  std::string_view mlp_norm = "post_attention_layernorm";  // "" = none
  std::string_view mlp_out_norm = "";
  std::string_view qkv = "";  // where one tensor holds all three
  std::string_view query = "self_attn.q_proj";
  std::string_view key = "self_attn.k_proj";
  std::string_view value = "self_attn.v_proj";
  std::string_view output = "self_attn.o_proj";
  std::string_view sinks = "";  // logits that a softmax has beside the tokens', one a query head
  std::string_view query_norm = "self_attn.q_norm";
  std::string_view key_norm = "self_attn.k_norm";
  std::string_view gate_up = "";            // where one tensor holds gate, then up
  std::string_view gate = "mlp.gate_proj";  // "" = the MLP has no gate
  std::string_view up = "mlp.up_proj";
  std::string_view down = "mlp.down_proj";
  // Layers of experts, whose own parts follow "<experts>.<index>."; gate, up and down of those that
  // every token goes through follow "<shared>.".
  std::string_view router = "mlp.gate";
  std::string_view experts = "mlp.experts";
  // Where all experts' matrices lie in one tensor, [experts, inputs, outputs], beside "_bias".
  std::string_view expert_gate_up = "";
  std::string_view expert_gate = "gate_proj";
  std::string_view expert_up = "up_proj";
  std::string_view expert_down = "down_proj";
  std::string_view shared = "mlp.shared_experts";

  constexpr bool gated() const { return !gate_up.empty() || !gate.empty(); }
};

struct ModelFamily {
  std::string_view type;  // config.json's model_type
  NormKind norm = NormKind::kRms;
  float norm_base = 0;  // added to the weights of all norms
  PositionKind position = PositionKind::kRotary;
  QkvLayout qkv_layout = QkvLayout::kSeparate;
  RotaryLayout rotary_layout = RotaryLayout::kHalf;
  double rotary_share = 1;        // of a head's dimensions, where the config does not say
  bool partial_rotary = false;    // the config may say less than all
  double rope_theta = 10000;      // where the config does not say
  bool local_rope = false;        // layers with a window have a rotation of their own
  bool unrotated_layers = false;  // no_rope_layers
  WindowRule window = {};
  bool root_embedding_scale = false;  // embeddings times sqrt(hidden)
  bool latent_attention = false;      // MLA, see LatentShape
  ExpertKind experts = ExpertKind::kNone;
  bool expert_bias = false;  // of routers, too
  HeadNorm head_norm = HeadNorm::kNone;
  Choice has_head_norm = {};
  bool head_norm_bias = false;
  Choice qkv_bias = {}, output_bias = {}, mlp_bias = {}, head_bias = {};
  bool tied_embeddings = false;        // where the config does not say
  bool norm_bias = true;               // of NormKind::kLayer
  Choice parallel = {};                // attention and MLP side by side, see ModelConfig
  bool one_norm_when_parallel = true;  // for both
  ConfigKeys keys = {};
  TensorNames names = {};

  // Null where there is none of this type.
  static const ModelFamily* find(std::string_view type);
  static std::string all_types();  // "a, b, c"
};

}  // namespace fasa
