#!/usr/bin/env python3
"""Makes the golden files beside this script: small random models with the logits that Hugging Face
transformers gives for them, and the logits of the bundled models.

Needs torch and transformers 5; run once, the results are committed:
    ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 python3 tests/golden/make_golden.py [NAME...]
(the variable matters on machines that announce AMX and trap on it).

A folder holds the model in Hugging Face form, golden.json (token ids, the positions whose logits
are kept) and logits.f32 ([positions, vocab], little endian). mtp.f32 are those of the head of
multi-token prediction (mtp_head.py), mtp.gguf is the same model in one file (mtp_gguf.py).
"""

import json
import pathlib
import shutil
import sys

import torch
import transformers

import mtp_gguf
import mtp_head

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parents[1] / "models"
BUNDLED = ("needle-3m", "pairs-400k", "partial-400k", "alibi-400k")
VOCAB = 64
TOKENS = 90

COMMON = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)


ALIBI = {key: COMMON[key] for key in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")}


def llama(**changes):
    return transformers.LlamaConfig(**{**COMMON, **changes})


def ernie(**changes):
    return transformers.Ernie4_5Config(**{**COMMON, "head_dim": 12, **changes})


def gpt_neox(**changes):
    shared = {key: value for key, value in COMMON.items() if key != "num_key_value_heads"}
    return transformers.GPTNeoXConfig(**{**shared, "hidden_size": 48, "num_attention_heads": 3, **changes})


def stablelm(**changes):
    return transformers.StableLmConfig(**{**COMMON, **changes})


def phi(**changes):
    return transformers.PhiConfig(**{**COMMON, **changes})


def bloom(**changes):
    return transformers.BloomConfig(**{**ALIBI, "hidden_size": 32, "n_layer": 2, **changes})


def mpt(**changes):
    return transformers.MptConfig(**{**ALIBI, "n_layers": 2, "max_seq_len": 256, **changes})


def deepseek_v2(**changes):
    return transformers.DeepseekV2Config(
        **{
            **COMMON,
            "num_key_value_heads": None,
            "first_k_dense_replace": 2,
            "kv_lora_rank": 18,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 6,
            "v_head_dim": 5,
            "n_routed_experts": 2,
            **changes,
        }
    )


def phi3(**changes):
    return transformers.Phi3Config(**{**COMMON, "original_max_position_embeddings": 32, **changes})


def gemma2(**changes):
    return transformers.Gemma2Config(
        **{
            **COMMON,
            "num_hidden_layers": 3,
            "head_dim": 12,
            "sliding_window": 20,
            "query_pre_attn_scalar": 9,
            "attn_logit_softcapping": 1.5,
            "final_logit_softcapping": 4.0,
            **changes,
        }
    )


def gemma3(**changes):
    return transformers.Gemma3TextConfig(
        **{
            **COMMON,
            "num_hidden_layers": 3,
            "head_dim": 12,
            "num_key_value_heads": 1,
            "sliding_window": 20,
            "sliding_window_pattern": 3,
            "query_pre_attn_scalar": 20,
            **changes,
        }
    )


EXPERTS = dict(num_experts_per_tok=2, moe_intermediate_size=24)


def qwen3_moe(**changes):
    return transformers.Qwen3MoeConfig(**{**COMMON, **EXPERTS, "num_experts": 5, "head_dim": 12, **changes})


def gpt_oss(**changes):
    return transformers.GptOssConfig(
        **{
            **COMMON,
            "head_dim": 12,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "sliding_window": 20,
            "rope_parameters": rope("yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                    original_max_position_embeddings=32),
            **changes,
        }
    )


def ministral3(**changes):
    return transformers.Ministral3Config(
        **{
            **COMMON,
            "hidden_size": 44,
            "intermediate_size": 60,
            "num_hidden_layers": 3,
            "num_attention_heads": 6,
            "head_dim": 12,
            "rope_parameters": rope("yarn", factor=8.0, original_max_position_embeddings=11,
                                    beta_fast=4.0, beta_slow=0.5, mscale=1.0, mscale_all_dim=1.0,
                                    llama_4_scaling_beta=0.4),
            **changes,
        }
    )


def olmo3(**changes):
    return transformers.Olmo3Config(
        **{
            **COMMON,
            "hidden_size": 48,
            "intermediate_size": 68,
            "num_hidden_layers": 5,
            "num_attention_heads": 6,
            "sliding_window": 9,
            "layer_types": [("full" if kind == "f" else "sliding") + "_attention" for kind in "ssfsf"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
                "full_attention": rope("yarn", factor=8.0, original_max_position_embeddings=16,
                                       beta_fast=3.0, beta_slow=1.0, attention_factor=1.35),
            },
            **changes,
        }
    )


def kinds(letters):
    names = {"f": "full_attention", "s": "sliding_attention", "l": "linear_attention"}
    return [names[kind] for kind in letters]


def gemma4(layers, full_theta, share, **changes):
    return transformers.Gemma4TextConfig(
        **{
            **COMMON,
            "num_hidden_layers": len(layers),
            "layer_types": kinds(layers),
            "head_dim": 12,
            "num_attention_heads": 6,
            "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": VOCAB,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
                "full_attention": {"rope_type": "proportional", "rope_theta": full_theta,
                                   "partial_rotary_factor": share},
            },
            **changes,
        }
    )


# `key`, `value`: (heads, dimensions) of the layers with linear attention.
def linear(of, layers, theta, share, key, value, taps, **changes):
    return of(
        **{
            **COMMON,
            "num_hidden_layers": len(layers),
            "layer_types": kinds(layers),
            "linear_num_key_heads": key[0],
            "linear_key_head_dim": key[1],
            "linear_num_value_heads": value[0],
            "linear_value_head_dim": value[1],
            "linear_conv_kernel_dim": taps,
            "rope_parameters": {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": share},
            **changes,
        }
    )


# Beside the text model, as small as they come.
VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
              image_size=8, patch_size=4)


def rope(kind, **parameters):
    return {"rope_type": kind, "rope_theta": 10000.0, **parameters}


# name -> (config, dtype of the file, what else is special)
CASES = {
    "llama-gqa-bf16": (llama(), torch.bfloat16, {}),
    "llama-biases": (llama(attention_bias=True, mlp_bias=True), torch.float32, {}),
    "llama-mqa-f16": (llama(num_key_value_heads=1), torch.float16, {}),
    "llama-mha-tied": (
        llama(num_key_value_heads=4, tie_word_embeddings=True, eos_token_id=[3, 5]),
        torch.bfloat16,
        {},
    ),
    "llama-odd-head": (llama(head_dim=14), torch.bfloat16, {}),
    "llama-llama3": (
        llama(
            rope_parameters=rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                 original_max_position_embeddings=32)
        ),
        torch.bfloat16,
        {},
    ),
    "llama-linear-old-config": (llama(rope_parameters=rope("linear", factor=4.0)), torch.bfloat16,
                                {"old_config": True}),
    "llama-yarn": (
        llama(rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=32),
              head_dim=16),
        torch.bfloat16,
        {},
    ),
    "mistral-window": (transformers.MistralConfig(**{**COMMON, "sliding_window": 24, "head_dim": 16}),
                       torch.bfloat16, {}),
    "qwen2-sharded": (transformers.Qwen2Config(**COMMON), torch.bfloat16, {"shards": True}),
    "qwen2-window": (
        transformers.Qwen2Config(
            **{**COMMON, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}
        ),
        torch.bfloat16,
        {},
    ),
    "qwen3": (transformers.Qwen3Config(**{**COMMON, "head_dim": 12}), torch.bfloat16, {}),
    "gpt-neox": (gpt_neox(), torch.bfloat16, {}),
    "gpt-neox-sequential": (
        gpt_neox(use_parallel_residual=False, attention_bias=False,
                 rope_parameters=rope("linear", factor=4.0, partial_rotary_factor=0.5)),
        torch.bfloat16,
        {},
    ),
    "stablelm": (stablelm(), torch.bfloat16, {}),
    "stablelm-parallel": (
        stablelm(use_parallel_residual=True, qk_layernorm=True, use_qkv_bias=True,
                 partial_rotary_factor=0.75),
        torch.bfloat16,
        {},
    ),
    "phi": (phi(), torch.bfloat16, {}),
    "phi-norms": (phi(qk_layernorm=True, partial_rotary_factor=0.25, num_key_value_heads=1),
                  torch.bfloat16, {}),
    "bloom": (bloom(n_head=4), torch.bfloat16, {}),
    "bloom-heads": (bloom(n_head=6, hidden_size=48, n_layer=1), torch.bfloat16, {}),
    "mpt": (mpt(n_heads=3, d_model=24), torch.bfloat16, {}),
    "deepseek-v2": (deepseek_v2(q_lora_rank=None), torch.bfloat16, {}),
    "deepseek-v2-yarn": (
        deepseek_v2(
            q_lora_rank=14,
            num_attention_heads=8,
            rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=32,
                                 mscale=0.7, mscale_all_dim=0.8),
        ),
        torch.bfloat16,
        {},
    ),
    "ernie": (ernie(), torch.bfloat16, {}),
    "ernie-mha-biases": (ernie(num_key_value_heads=4, use_bias=True, tie_word_embeddings=False),
                         torch.bfloat16, {}),
    "granite": (
        transformers.GraniteConfig(
            **{**COMMON, "embedding_multiplier": 3.0, "attention_multiplier": 0.25,
               "residual_multiplier": 0.4, "logits_scaling": 2.5, "attention_bias": True,
               "mlp_bias": True}
        ),
        torch.bfloat16,
        {},
    ),
    "olmo2": (transformers.Olmo2Config(**COMMON), torch.bfloat16, {}),
    "olmo2-biases": (transformers.Olmo2Config(**{**COMMON, "num_key_value_heads": 4, "attention_bias": True}),
                     torch.bfloat16, {}),
    "smollm3": (
        transformers.SmolLM3Config(**{**COMMON, "num_hidden_layers": 3, "no_rope_layer_interval": 2}),
        torch.bfloat16,
        {},
    ),
    "smollm3-window": (
        transformers.SmolLM3Config(
            **{**COMMON, "no_rope_layers": [0, 1], "use_sliding_window": True, "sliding_window": 20,
               "tie_word_embeddings": False}
        ),
        torch.bfloat16,
        {},
    ),
    "phi3": (
        phi3(rope_parameters=rope("longrope", short_factor=[1.0, 1.1, 1.3], long_factor=[1.5, 2.5, 6.0],
                                  partial_rotary_factor=0.75)),
        torch.bfloat16,
        {},
    ),
    "phi3-short": (
        phi3(original_max_position_embeddings=256, sliding_window=30, num_key_value_heads=4,
             rope_parameters=rope("longrope", short_factor=[1.0, 1.1, 1.3, 2.0],
                                  long_factor=[1.5, 2.5, 6.0, 9.0])),
        torch.bfloat16,
        {},
    ),
    "gemma3": (gemma3(layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
               torch.bfloat16, {}),
    "gemma3-old-config": (
        gemma3(rope_parameters={"full_attention": rope("linear", factor=8.0),
                                "sliding_attention": rope("default")}),
        torch.bfloat16,
        {"old_gemma_config": True},
    ),
    "qwen3-moe": (qwen3_moe(norm_topk_prob=True), torch.bfloat16, {}),
    "qwen3-moe-mixed": (
        qwen3_moe(num_hidden_layers=4, num_experts=4, num_experts_per_tok=3, decoder_sparse_step=2,
                  mlp_only_layers=[3], norm_topk_prob=False),
        torch.bfloat16,
        {},
    ),
    "mixtral": (
        transformers.MixtralConfig(**{**COMMON, "num_local_experts": 4, "num_experts_per_tok": 2}),
        torch.bfloat16,
        {},
    ),
    "deepseek-v2-moe": (
        deepseek_v2(**EXPERTS, num_hidden_layers=3, first_k_dense_replace=1, n_routed_experts=6,
                    n_shared_experts=2, routed_scaling_factor=1.5, q_lora_rank=None),
        torch.bfloat16,
        {},
    ),
    "deepseek-v2-moe-groups": (
        deepseek_v2(**EXPERTS, first_k_dense_replace=0, n_routed_experts=6, n_shared_experts=1,
                    topk_method="group_limited_greedy", n_group=3, topk_group=2,
                    routed_scaling_factor=2.0, q_lora_rank=None),
        torch.bfloat16,
        {},
    ),
    "gpt-oss": (gpt_oss(), torch.bfloat16, {}),
    "gpt-oss-old-config": (gpt_oss(num_hidden_layers=4, num_local_experts=4, num_experts_per_tok=4,
                                   swiglu_limit=1.5), torch.bfloat16, {"old_config": True}),
    "gemma2": (gemma2(), torch.bfloat16, {}),
    "gemma2-uncapped": (gemma2(num_key_value_heads=1, attn_logit_softcapping=None,
                               final_logit_softcapping=None), torch.bfloat16, {}),
    "ministral3": (ministral3(), torch.bfloat16, {}),
    "mistral3-vision": (
        transformers.Mistral3Config(
            text_config=ministral3(num_hidden_layers=2, num_key_value_heads=3).to_dict(),
            vision_config=transformers.PixtralVisionConfig(**VISION).to_dict(),
            tie_word_embeddings=False, image_token_index=63),
        torch.bfloat16,
        {"vision": True},
    ),
    "gemma3-vision": (
        transformers.Gemma3Config(
            text_config=gemma3(hidden_size=54, intermediate_size=70, num_attention_heads=6,
                               num_key_value_heads=2, head_dim=14, sliding_window=8,
                               rope_parameters={"full_attention": rope("linear", factor=4.0),
                                                "sliding_attention": rope("default")}).to_dict(),
            vision_config=transformers.SiglipVisionConfig(**VISION).to_dict(),
            mm_tokens_per_image=4, image_token_index=63, boi_token_index=62, eoi_token_index=61,
            eos_token_id=[1, 3]),
        torch.bfloat16,
        {"vision": True},
    ),
    "olmo3": (olmo3(), torch.bfloat16, {}),
    "olmo3-defaults": (olmo3(num_hidden_layers=4, layer_types=None, rope_parameters=None,
                             num_key_value_heads=6), torch.bfloat16, {}),
    "seed-oss": (transformers.SeedOssConfig(**{**COMMON, "head_dim": 12, "attention_out_bias": True,
                                               "mlp_bias": True}), torch.bfloat16, {}),
    "glm4": (transformers.Glm4Config(**{**COMMON, "head_dim": 12}), torch.bfloat16, {}),
    "exaone4": (transformers.Exaone4Config(**{**COMMON, "num_hidden_layers": 4, "sliding_window": 20}),
                torch.bfloat16, {}),
    "exaone4-full": (transformers.Exaone4Config(
        **{**COMMON, "sliding_window": None, "layer_types": ["full_attention"] * 2}),
                     torch.bfloat16, {}),
    "starcoder2": (transformers.Starcoder2Config(**{**COMMON, "sliding_window": 24}),
                   torch.bfloat16, {}),
    "cohere2": (transformers.Cohere2Config(**{**COMMON, "num_hidden_layers": 4, "sliding_window": 20,
                                              "logit_scale": 0.3}), torch.bfloat16, {}),
    "qwen2-moe": (
        transformers.Qwen2MoeConfig(**{**COMMON, **EXPERTS, "num_experts": 5, "num_hidden_layers": 3,
                                       "shared_expert_intermediate_size": 28, "mlp_only_layers": [1],
                                       "use_sliding_window": True, "sliding_window": 20}),
        torch.bfloat16,
        {},
    ),
    "gemma4-one-shape": (
        gemma4("sfsf", 4e4, 0.3, hidden_size=44, intermediate_size=60, global_head_dim=12,
               sliding_window=9, final_logit_softcapping=19.0),
        torch.bfloat16,
        {},
    ),
    "gemma4": (
        gemma4("ssfsf", 4e4, 0.3, hidden_size=44, intermediate_size=60, global_head_dim=20,
               num_global_key_value_heads=3, attention_k_eq_v=True, sliding_window=20,
               final_logit_softcapping=19.0),
        torch.bfloat16,
        {},
    ),
    "gemma4-shared": (
        gemma4("ssfsfsf", 4e4, 0.3, hidden_size=44, intermediate_size=60, global_head_dim=20,
               sliding_window=9, num_kv_shared_layers=3, use_double_wide_mlp=True,
               hidden_size_per_layer_input=10, final_logit_softcapping=19.0),
        torch.bfloat16,
        {},
    ),
    "gemma4-moe": (
        gemma4("sfsf", 6e4, 0.25, hidden_size=52, intermediate_size=36, num_key_value_heads=3,
               global_head_dim=24, num_global_key_value_heads=2, attention_k_eq_v=True,
               sliding_window=7, enable_moe_block=True, num_experts=7, top_k_experts=3,
               moe_intermediate_size=20, final_logit_softcapping=23.0),
        torch.bfloat16,
        {},
    ),
    "gemma4-vision": (
        transformers.Gemma4Config(
            text_config=gemma4("sfs", 3e4, 0.5, hidden_size=36, intermediate_size=52,
                               num_attention_heads=4, global_head_dim=16, sliding_window=12,
                               pad_token_id=0, final_logit_softcapping=21.0).to_dict(),
            vision_config=transformers.Gemma4VisionConfig(
                hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                num_key_value_heads=1, head_dim=8, position_embedding_size=16).to_dict(),
            audio_config=None, image_token_id=63, boi_token_id=62, eoi_token_id=61,
            video_token_id=60, audio_token_id=60, eos_token_id=[1, 3]),
        torch.bfloat16,
        {"vision": True},
    ),
    "qwen3-5": (
        linear(transformers.Qwen3_5TextConfig, "lfllf", 5e3, 0.5, (3, 10), (6, 14), 4, hidden_size=52,
               intermediate_size=76, num_attention_heads=6, head_dim=24),
        torch.bfloat16,
        {"letters": True},
    ),
    "qwen3-5-moe": (
        linear(transformers.Qwen3_5MoeTextConfig, "llfl", 7e3, 0.25, (2, 12), (6, 8), 3, hidden_size=44,
               num_attention_heads=5, num_key_value_heads=1, head_dim=16, num_experts=7, num_experts_per_tok=3,
               moe_intermediate_size=20, shared_expert_intermediate_size=28),
        torch.bfloat16,
        {},
    ),
    "qwen3-next": (
        linear(transformers.Qwen3NextConfig, "llfll", 1e4, 0.3, (2, 12), (6, 16), 4, hidden_size=40,
               intermediate_size=72, num_attention_heads=6, num_key_value_heads=3, head_dim=20, num_experts=6,
               num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=36,
               norm_topk_prob=False, mlp_only_layers=[1]),
        torch.bfloat16,
        {},
    ),
    "qwen3-5-vision": (
        transformers.Qwen3_5Config(
            text_config=linear(transformers.Qwen3_5TextConfig, "llf", 3e4, 0.25, (2, 8), (2, 20), 4,
                               hidden_size=36, intermediate_size=52, head_dim=16).to_dict(),
            vision_config=dict(hidden_size=8, intermediate_size=8, depth=1, num_heads=1, out_hidden_size=36,
                               num_position_embeddings=16),
            image_token_id=63, video_token_id=62, vision_start_token_id=61, vision_end_token_id=60,
            tie_word_embeddings=True),
        torch.bfloat16,
        {"vision": True},
    ),
    "glm4-moe": (
        transformers.Glm4MoeConfig(
            **{**COMMON, "num_hidden_layers": 3, "head_dim": 12, "attention_bias": True, "use_qk_norm": True,
               "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
               "n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5,
               "num_nextn_predict_layers": 0}),
        torch.bfloat16,
        {},
    ),
    "qwen3-5-mtp": (
        linear(transformers.Qwen3_5TextConfig, "lf", 5e3, 0.5, (2, 8), (2, 10), 4, hidden_size=40,
               intermediate_size=52, head_dim=16),
        torch.bfloat16,
        {"letters": True, "mtp": "qwen"},
    ),
    "qwen3-5-moe-mtp": (
        linear(transformers.Qwen3_5MoeTextConfig, "lf", 7e3, 0.25, (2, 8), (4, 8), 3, hidden_size=36,
               head_dim=16, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20,
               shared_expert_intermediate_size=28),
        torch.bfloat16,
        {"mtp": "qwen"},
    ),
    "glm4-moe-mtp": (
        transformers.Glm4MoeConfig(
            **{**COMMON, "num_hidden_layers": 2, "head_dim": 12, "attention_bias": True, "use_qk_norm": True,
               "n_routed_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
               "n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5}),
        torch.bfloat16,
        {"letters": True, "mtp": "glm"},
    ),
}


def randomise(model, generator):
    """Weights large enough that attention is far from uniform and every parameter matters."""
    kind = model.config.model_type
    # What a norm's weights vary around.
    base = 0 if kind.startswith(("gemma2", "gemma3", "qwen3_5", "qwen3_next")) else 1
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.data = 0.8 + 0.2 * torch.rand(buffer.shape, generator=generator)
        if name.endswith("e_score_correction_bias"):
            buffer.data = 0.4 * torch.randn(buffer.shape, generator=generator)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if kind.startswith("gemma4") and "q_norm" in name:
            parameter.data = 0.4 + 0.1 * noise  # scores are not scaled
        elif name.endswith("linear_attn.norm.weight"):
            parameter.data = 1 + 0.2 * noise
        elif name.endswith("A_log"):
            parameter.data = 3 * torch.rand(parameter.shape, generator=generator) - 2
        elif "norm" in name and not name.endswith("bias"):
            parameter.data = base + 0.2 * noise
        elif name.endswith("scale"):
            parameter.data = 1 + 0.3 * noise
        elif name.endswith("sinks"):
            parameter.data = 2 + noise
        elif name.endswith("bias"):
            parameter.data = 0.3 * noise
        elif "embed" in name or "lm_head" in name:
            parameter.data = 0.5 * noise
        else:
            parameter.data = noise / parameter.shape[-1] ** 0.5


def to_old_config(folder):
    """rope_theta and rope_scaling as before transformers 5, torch_dtype for dtype."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    parameters = config.pop("rope_parameters")
    config["rope_theta"] = parameters.pop("rope_theta")
    config["rope_scaling"] = {"type": parameters.pop("rope_type"), **parameters}
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2) + "\n")


def to_old_gemma_config(folder):
    """Two bases, one scaling and a pattern, as before transformers 5."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    kinds = config.pop("rope_parameters")
    config.pop("layer_types")
    full = kinds["full_attention"]
    config["rope_theta"] = full.pop("rope_theta")
    config["rope_local_base_freq"] = kinds["sliding_attention"]["rope_theta"]
    config["rope_scaling"] = full
    config["sliding_window_pattern"] = 3
    path.write_text(json.dumps(config, indent=2) + "\n")


def write_logits(folder, name, tokens, positions, logits):
    kept = logits[positions].to(torch.float32).contiguous()
    assert torch.isfinite(kept).all()
    (folder / f"{name}.f32").write_bytes(kept.numpy().tobytes())
    (folder / "golden.json").write_text(
        json.dumps({"tokens": tokens, "positions": positions, "vocab": kept.shape[1]}) + "\n"
    )


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0]


def make_case(name, index):
    config, dtype, special = CASES[name]
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(1000 + index)
    config._attn_implementation = "eager"
    of = transformers.AutoModelForImageTextToText if special.get("vision") else transformers.AutoModelForCausalLM
    model = of.from_config(config, dtype=torch.float32).eval()
    randomise(model, generator)
    model.tie_weights()
    model = model.to(dtype)
    model.save_pretrained(folder, max_shard_size="20KB" if special.get("shards") else "1GB")
    if special.get("old_config"):
        to_old_config(folder)
    if special.get("old_gemma_config"):
        to_old_gemma_config(folder)
    if special.get("letters"):
        write_letters(folder)
    head = None
    if special.get("mtp"):
        head = mtp_head.add_head(folder, model, special["mtp"], dtype, randomise, generator)
        mtp_gguf.write(folder, json.loads((folder / "config.json").read_text()))
    # Loaded again: what the files say counts, not what is in memory here.
    model = of.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokens = torch.randint(0, VOCAB - (4 if special.get("vision") else 0), (TOKENS,), generator=generator).tolist()
    write_logits(folder, "logits", tokens, list(range(2, TOKENS, 3)), logits_of(model, tokens))
    if head is not None:
        write_logits(folder, "mtp", tokens, list(range(2, TOKENS, 3)), mtp_head.logits_of(head, model, tokens))
    print(name, sum(p.stat().st_size for p in folder.iterdir()), "bytes")


def write_letters(folder):
    """A tokenizer with one id for each letter from A to |, blank and line end, and ChatML."""
    controls = ["<|im_start|>", "<|im_end|>"]
    pieces = [chr(ord("A") + i) for i in range(VOCAB - 4)] + ["\u0120", "\u010a"]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
             "use_regex": False}
    added = [{"id": len(pieces) + i, "content": text, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True}
             for i, text in enumerate(controls)]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
                  "byte_fallback": False, "vocab": {p: i for i, p in enumerate(pieces)},
                  "merges": []}}) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "eos_token": controls[1],
        "chat_template":
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
        indent=2) + "\n")


def make_bundled(name):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    tokens = list((MODELS / "texts" / "ruth.txt").read_bytes()[:384])
    positions = list(range(11, 384, 12))
    for logits, dtype in (("logits", torch.float32), ("logits-bf16", torch.bfloat16)):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            MODELS / name, dtype=dtype, attn_implementation="eager").eval()
        write_logits(folder, logits, tokens, positions, logits_of(model, tokens))


if __name__ == "__main__":
    wanted = sys.argv[1:] or [*CASES, *BUNDLED]
    for case_index, case in enumerate(CASES):
        if case in wanted:
            make_case(case, case_index)
    for bundled in BUNDLED:
        if bundled in wanted:
            make_bundled(bundled)
