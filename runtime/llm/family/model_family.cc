#include "runtime/llm/family/model_family.h"

#include <algorithm>
#include <array>

#include "runtime/llm/family/model_family_gemma.h"
#include "runtime/llm/family/model_family_qwen.h"

namespace fasa {
namespace {

constexpr ModelFamily kLlama{.type = "llama", .biases = kLlamaBiases};

constexpr ModelFamily kMistral{.type = "mistral",
                               .window = {.layers = WindowedLayers::kAll, .otherwise = 4096}};

constexpr ModelFamily kMinistral3{.type = "ministral3",
                                  .rope_theta = 1e6,
                                  .query_growth = true,
                                  .window = {.layers = WindowedLayers::kAll},
                                  .keys = {.default_head_dim = 128, .default_norm_eps = 1e-5}};

constexpr ModelFamily kMixtral{.type = "mixtral",
                               .rope_theta = 1e6,
                               .window = {.layers = WindowedLayers::kAll},
                               .experts = ExpertKind::kMixtral,
                               .keys = {.default_norm_eps = 1e-5},
                               .names = {.router = "block_sparse_moe.gate",
                                         .experts = "block_sparse_moe.experts",
                                         .expert_gate = "w1",
                                         .expert_up = "w3",
                                         .expert_down = "w2"}};

constexpr ModelFamily kGptOss{
    .type = "gpt_oss",
    .rope_theta = 150000,
    .window = {.layers = WindowedLayers::kPattern, .otherwise = 128, .pattern = 2},
    .experts = ExpertKind::kGptOss,
    .expert_bias = true,
    .biases = biases_by({.key = "attention_bias", .otherwise = true}),
    .keys = {.default_head_dim = 64, .default_norm_eps = 1e-5},
    .names = {
        .sinks = "self_attn.sinks", .router = "mlp.router", .expert_gate_up = "gate_up_proj"}};

constexpr ModelFamily kErnie45{.type = "ernie4_5",
                               .rotary_layout = RotaryLayout::kInterleaved,
                               .biases = biases_by({.key = "use_bias"}, {.key = "use_bias"}),
                               .tied_embeddings = true,
                               .keys = {.default_head_dim = 128, .default_norm_eps = 1e-5}};

constexpr ModelFamily kGptNeox{
    .type = "gpt_neox",
    .norm = NormKind::kLayer,
    .qkv_layout = QkvLayout::kByHead,
    .rotary_share = 0.25,
    .partial_rotary = true,
    .biases = biases_by({.key = "attention_bias", .otherwise = true}, kAlways),
    .parallel = {.key = "use_parallel_residual", .otherwise = true},
    .one_norm_when_parallel = false,
    .keys = {.norm_eps = "layer_norm_eps", .default_norm_eps = 1e-5, .default_activation = "gelu"},
    .names = {.root = "gpt_neox.",
              .embeddings = "embed_in",
              .final_norm = "final_layer_norm",
              .head = "embed_out",
              .qkv = "attention.query_key_value",
              .output = "attention.dense",
              .gate = "",
              .up = "mlp.dense_h_to_4h",
              .down = "mlp.dense_4h_to_h"}};

constexpr ModelFamily kStableLm{
    .type = "stablelm",
    .norm = NormKind::kLayer,
    .rotary_share = 0.25,
    .partial_rotary = true,
    .head_norm = HeadNorm::kPerHead,
    .has_head_norm = {.key = "qk_layernorm"},
    .biases = {.qkv = {.key = "use_qkv_bias"}},
    .parallel = {.key = "use_parallel_residual"},
    .keys = {.norm_eps = "layer_norm_eps", .default_norm_eps = 1e-5},
    .names = {.query_norm = "self_attn.q_layernorm", .key_norm = "self_attn.k_layernorm"}};

constexpr ModelFamily kPhi{.type = "phi",
                           .norm = NormKind::kLayer,
                           .rotary_share = 0.5,
                           .partial_rotary = true,
                           .head_norm = HeadNorm::kShared,
                           .has_head_norm = {.key = "qk_layernorm"},
                           .head_norm_bias = true,
                           .biases = {kAlways, kAlways, kAlways, kAlways},
                           .parallel = kAlways,
                           .keys = {.norm_eps = "layer_norm_eps",
                                    .default_norm_eps = 1e-5,
                                    .default_activation = "gelu_new"},
                           .names = {.final_norm = "final_layernorm",
                                     .output = "self_attn.dense",
                                     .query_norm = "self_attn.q_layernorm",
                                     .key_norm = "self_attn.k_layernorm",
                                     .gate = "",
                                     .up = "mlp.fc1",
                                     .down = "mlp.fc2"}};

constexpr ModelFamily kBloom{.type = "bloom",
                             .norm = NormKind::kLayer,
                             .position = PositionKind::kAlibi,
                             .qkv_layout = QkvLayout::kByHead,
                             .biases = biases_by(kAlways, kAlways),
                             .tied_embeddings = true,
                             .keys = {.layers = "n_layer",
                                      .query_heads = "n_head",
                                      .old_hidden = "n_embed",
                                      .old_query_heads = "num_attention_heads",
                                      .kv_heads = nullptr,
                                      .intermediate = nullptr,
                                      .default_expansion = 4,
                                      .positions = nullptr,
                                      .norm_eps = "layer_norm_epsilon",
                                      .default_norm_eps = 1e-5,
                                      .activation = nullptr,
                                      .default_activation = "gelu_new"},
                             .names = {.root = "transformer.",
                                       .embeddings = "word_embeddings",
                                       .embedding_norm = "word_embeddings_layernorm",
                                       .layers = "h",
                                       .final_norm = "ln_f",
                                       .qkv = "self_attention.query_key_value",
                                       .output = "self_attention.dense",
                                       .gate = "",
                                       .up = "mlp.dense_h_to_4h",
                                       .down = "mlp.dense_4h_to_h"}};

// As in transformers: one KV head per query head, no clipping, no query norm.
constexpr ModelFamily kMpt{.type = "mpt",
                           .norm = NormKind::kLayer,
                           .position = PositionKind::kAlibi,
                           .qkv_layout = QkvLayout::kStacked,
                           .tied_embeddings = true,
                           .norm_bias = false,
                           .keys = {.hidden = "d_model",
                                    .layers = "n_layers",
                                    .query_heads = "n_heads",
                                    .kv_heads = nullptr,
                                    .intermediate = nullptr,
                                    .default_expansion = 4,
                                    .positions = "max_seq_len",
                                    .norm_eps = "layer_norm_epsilon",
                                    .default_norm_eps = 1e-5,
                                    .activation = nullptr,
                                    .default_activation = "gelu"},
                           .names = {.root = "transformer.",
                                     .embeddings = "wte",
                                     .layers = "blocks",
                                     .final_norm = "norm_f",
                                     .attention_norm = "norm_1",
                                     .mlp_norm = "norm_2",
                                     .qkv = "attn.Wqkv",
                                     .output = "attn.out_proj",
                                     .gate = "",
                                     .up = "ffn.up_proj",
                                     .down = "ffn.down_proj"}};

constexpr ModelFamily kDeepseekV2{.type = "deepseek_v2",
                                  .rotary_layout = RotaryLayout::kInterleaved,
                                  .latent_attention = true,
                                  .experts = ExpertKind::kDeepSeek,
                                  .biases = {.mlp = {.key = "mlp_bias"}}};

constexpr ModelFamily kGranite{.type = "granite",
                               .biases = kLlamaBiases,
                               .keys = {.embedding_scale = "embedding_multiplier",
                                        .residual_scale = "residual_multiplier",
                                        .logits_divisor = "logits_scaling",
                                        .score_scale = "attention_multiplier"}};

// Norms of the blocks' outputs only.
constexpr TensorNames kOutputNorms{.attention_norm = "",
                                   .attention_out_norm = "post_attention_layernorm",
                                   .mlp_norm = "",
                                   .mlp_out_norm = "post_feedforward_layernorm"};

constexpr ModelFamily kOlmo2{.type = "olmo2",
                             .head_norm = HeadNorm::kTogether,
                             .biases = kAttentionBias,
                             .keys = {.default_norm_eps = 1e-5},
                             .names = kOutputNorms};

constexpr ModelFamily kOlmo3{
    .type = "olmo3",
    .rope_theta = 5e5,
    .local_rope = true,
    .local_rope_theta = 5e5,
    .window = {.layers = WindowedLayers::kPattern, .otherwise = 4096, .pattern = 4},
    .head_norm = HeadNorm::kTogether,
    .biases = kAttentionBias,
    .keys = {.default_norm_eps = 1e-5},
    .names = kOutputNorms};

constexpr ModelFamily kExaone4{
    .type = "exaone4",
    .unrotated_full = true,
    .window = {.layers = WindowedLayers::kPattern, .otherwise = 4096, .pattern = 4},
    .head_norm = HeadNorm::kShared,
    .keys = {.default_norm_eps = 1e-5},
    .names = kOutputNorms};

constexpr ModelFamily kGlm4{.type = "glm4",
                            .rotary_layout = RotaryLayout::kInterleaved,
                            .rotary_share = 0.5,
                            .partial_rotary = true,
                            .biases = {.qkv = {.key = "attention_bias", .otherwise = true}},
                            .keys = {.default_head_dim = 128, .default_norm_eps = 1.5625e-7},
                            .names = {.attention_out_norm = "post_self_attn_layernorm",
                                      .mlp_out_norm = "post_mlp_layernorm",
                                      .gate_up = "mlp.gate_up_proj"}};

constexpr ModelFamily kGlm4Moe{.type = "glm4_moe",
                               .rotary_share = 0.5,
                               .partial_rotary = true,
                               .experts = ExpertKind::kGlm4Moe,
                               .mtp_head = true,
                               .head_norm = HeadNorm::kShared,
                               .has_head_norm = {.key = "use_qk_norm"},
                               .biases = {.qkv = {.key = "attention_bias"}},
                               .keys = {.default_norm_eps = 1e-5},
                               .names = {.router_correction = "mlp.gate.e_score_correction_bias"}};

constexpr ModelFamily kSeedOss{.type = "seed_oss",
                               .biases = {.qkv = {.key = "attention_bias", .otherwise = true},
                                          .output = {.key = "attention_out_bias"},
                                          .mlp = {.key = "mlp_bias"}},
                               .keys = {.default_head_dim = 128}};

constexpr ModelFamily kStarcoder2{.type = "starcoder2",
                                  .norm = NormKind::kLayer,
                                  .window = {.layers = WindowedLayers::kAll},
                                  .biases = biases_by({.key = "use_bias", .otherwise = true},
                                                      {.key = "use_bias", .otherwise = true}),
                                  .tied_embeddings = true,
                                  .keys = {.norm_eps = "norm_epsilon",
                                           .default_norm_eps = 1e-5,
                                           .default_activation = "gelu_pytorch_tanh"},
                                  .names = {.gate = "", .up = "mlp.c_fc", .down = "mlp.c_proj"}};

constexpr ModelFamily kCohere2{
    .type = "cohere2",
    .norm = NormKind::kLayer,
    .rotary_layout = RotaryLayout::kInterleaved,
    .unrotated_full = true,
    .window = {.layers = WindowedLayers::kPattern, .otherwise = 4096, .pattern = 4},
    .biases = kAttentionBias,
    .tied_embeddings = true,
    .norm_bias = false,
    .parallel = kAlways,
    .keys = {.norm_eps = "layer_norm_eps",
             .default_norm_eps = 1e-5,
             .logits_scale = "logit_scale",
             .default_logits_scale = 0.0625}};

constexpr ModelFamily kSmolLm3{
    .type = "smollm3",
    .rope_theta = 2e6,
    .unrotated_layers = true,
    .window = {.layers = WindowedLayers::kUnrotated, .enabled = "use_sliding_window"},
    .biases = kLlamaBiases,
    .tied_embeddings = true};

constexpr ModelFamily kPhi3{.type = "phi3",
                            .qkv_layout = QkvLayout::kStacked,
                            .partial_rotary = true,
                            .window = {.layers = WindowedLayers::kAll},
                            .keys = {.default_norm_eps = 1e-5},
                            .names = {.qkv = "self_attn.qkv_proj", .gate_up = "mlp.gate_up_proj"}};

constexpr std::array kFamilies = {
    kLlama,      kMistral,    kMixtral,    kQwen2,     kQwen3,    kQwen3Moe, kQwen2Moe,
    kErnie45,    kGptNeox,    kStableLm,   kPhi,       kBloom,    kMpt,      kGranite,
    kDeepseekV2, kOlmo2,      kOlmo3,      kSmolLm3,   kPhi3,     kGemma2,   kGemma3,
    kGemma4,     kGptOss,     kMinistral3, kSeedOss,   kGlm4,     kGlm4Moe,  kExaone4,
    kCohere2,    kStarcoder2, kQwen35,     kQwen35Moe, kQwen3Next};

}  // namespace

const ModelFamily* ModelFamily::find(std::string_view type) {
  const auto found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                  [&](const ModelFamily& family) { return family.type == type; });
  return found == kFamilies.end() ? nullptr : &*found;
}

std::string ModelFamily::all_types() {
  std::string text;
  for (const ModelFamily& family : kFamilies) {
    if (!text.empty()) text += ", ";
    text += family.type;
  }
  return text;
}

}  // namespace fasa
