// The Qwen models of the table of families.
#pragma once

#include "runtime/llm/family/model_family.h"

namespace fasa {

inline constexpr WindowRule kQwenWindow{
    .layers = WindowedLayers::kFrom, .enabled = "use_sliding_window", .otherwise = 4096};

inline constexpr ModelFamily kQwen2{
    .type = "qwen2", .window = kQwenWindow, .biases = {.qkv = kAlways}};

inline constexpr ModelFamily kQwen3{.type = "qwen3",
                                    .window = kQwenWindow,
                                    .head_norm = HeadNorm::kShared,
                                    .biases = kAttentionBias,
                                    .keys = {.default_head_dim = 128}};

inline constexpr ModelFamily kQwen3Moe{
    .type = "qwen3_moe",
    .window = {.layers = WindowedLayers::kAll, .enabled = "use_sliding_window", .otherwise = 4096},
    .experts = ExpertKind::kQwen,
    .head_norm = HeadNorm::kShared,
    .biases = kAttentionBias};

inline constexpr ModelFamily kQwen2Moe{
    .type = "qwen2_moe",
    .window = {.layers = WindowedLayers::kPattern,
               .enabled = "use_sliding_window",
               .otherwise = 4096,
               .pattern = 2},
    .experts = ExpertKind::kQwen,
    .biases = {.qkv = {.key = "qkv_bias", .otherwise = true}},
    .names = {.shared = "mlp.shared_expert", .shared_gate = "mlp.shared_expert_gate"}};

inline constexpr ModelFamily kQwen35{.type = "qwen3_5_text",
                                     .norm_base = 1,
                                     .rotary_share = 0.25,
                                     .partial_rotary = true,
                                     .linear = LinearKind::kSeparate,
                                     .output_gate = true,
                                     .mtp_head = true,
                                     .head_norm = HeadNorm::kShared,
                                     .keys = {.default_head_dim = 256}};

// All layers have experts, so the MLP's width is in no config.
inline constexpr ModelFamily kQwen35Moe{
    .type = "qwen3_5_moe_text",
    .norm_base = 1,
    .rotary_share = 0.25,
    .partial_rotary = true,
    .experts = ExpertKind::kQwen,
    .normalised_experts = kAlways,
    .linear = LinearKind::kSeparate,
    .output_gate = true,
    .mtp_head = true,
    .head_norm = HeadNorm::kShared,
    .keys = {.intermediate = nullptr, .default_head_dim = 256, .default_expansion = 1},
    .names = {.shared = "mlp.shared_expert", .shared_gate = "mlp.shared_expert_gate"}};

inline constexpr ModelFamily kQwen3Next{
    .type = "qwen3_next",
    .norm_base = 1,
    .rotary_share = 0.25,
    .partial_rotary = true,
    .experts = ExpertKind::kQwen,
    .normalised_experts = {.key = "norm_topk_prob", .otherwise = true},
    .linear = LinearKind::kByHead,
    .output_gate = true,
    .mtp_head = true,
    .head_norm = HeadNorm::kShared,
    .keys = {.default_head_dim = 256},
    .names = {.shared = "mlp.shared_expert", .shared_gate = "mlp.shared_expert_gate"}};

}  // namespace fasa
