// The Gemma models of the table of families.
#pragma once

#include "runtime/llm/family/model_family.h"

namespace fasa {

inline constexpr TensorNames kGemmaNorms{.attention_out_norm = "post_attention_layernorm",
                                         .mlp_norm = "pre_feedforward_layernorm",
                                         .mlp_out_norm = "post_feedforward_layernorm"};

inline constexpr ModelFamily kGemma2{
    .type = "gemma2",
    .norm_base = 1,
    .window = {.layers = WindowedLayers::kPattern, .otherwise = 4096, .pattern = 2},
    .root_embedding_scale = true,
    .biases = kAttentionBias,
    .tied_embeddings = true,
    .keys = {.default_head_dim = 256,
             .activation = "hidden_activation",
             .default_activation = "gelu_pytorch_tanh",
             .query_scalar = "query_pre_attn_scalar",
             .default_query_scalar = 256},
    .names = kGemmaNorms};

inline constexpr ModelFamily kGemma3{
    .type = "gemma3_text",
    .norm_base = 1,
    .rope_theta = 1e6,
    .local_rope = true,
    .window = {.layers = WindowedLayers::kPattern, .otherwise = 4096, .pattern = 6},
    .root_embedding_scale = true,
    .head_norm = HeadNorm::kShared,
    .biases = kAttentionBias,
    .tied_embeddings = true,
    .keys = {.default_head_dim = 256,
             .activation = "hidden_activation",
             .default_activation = "gelu_pytorch_tanh",
             .query_scalar = "query_pre_attn_scalar",
             .default_query_scalar = 256},
    .names = kGemmaNorms};

inline constexpr ModelFamily kGemma4{
    .type = "gemma4_text",
    .rotary_share = 0.25,
    .proportional_rope = true,
    .partial_rotary = true,
    .rope_theta = 1e6,
    .local_rope = true,
    .window = {.layers = WindowedLayers::kPattern,
               .otherwise = 512,
               .pattern = 6,
               .last_full = true},
    .root_embedding_scale = true,
    .experts = ExpertKind::kGemma4,
    .head_norm = HeadNorm::kShared,
    .value_norm = true,
    .biases = kAttentionBias,
    .tied_embeddings = true,
    .keys = {.default_head_dim = 256,
             .activation = "hidden_activation",
             .default_activation = "gelu_pytorch_tanh",
             .fixed_score_scale = 1},
    .names = {.attention_out_norm = "post_attention_layernorm",
              .mlp_norm = "pre_feedforward_layernorm",
              .mlp_out_norm = "post_feedforward_layernorm",
              .router = "router.proj",
              .experts = "experts",
              .expert_gate_up = "gate_up_proj",
              .router_scale = "router.scale",
              .expert_scale = "router.per_expert_scale",
              .beside_mlp_out_norm = "post_feedforward_layernorm_1",
              .beside_norm = "pre_feedforward_layernorm_2",
              .beside_out_norm = "post_feedforward_layernorm_2",
              .layer_embeddings = "embed_tokens_per_layer",
              .layer_embedding_projection = "per_layer_model_projection",
              .layer_embedding_norm = "per_layer_projection_norm",
              .layer_input_gate = "per_layer_input_gate",
              .layer_input_projection = "per_layer_projection",
              .layer_input_norm = "post_per_layer_input_norm",
              .layer_factor = "layer_scalar"}};

}  // namespace fasa
