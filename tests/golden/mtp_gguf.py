"""Writes a golden folder with a head of multi-token prediction as a GGUF file beside its tensors:
the head's layer behind the others, its own parts named nextn.*."""

import pathlib
import sys

import safetensors.torch
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import gguf  # noqa: E402  (tests/tools/gguf.py)

TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
PARTS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
         "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
         "mlp.shared_experts.up_proj": "ffn_up_shexp",
         "mlp.shared_experts.down_proj": "ffn_down_shexp",
         "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
         "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
         "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm",
         "linear_attn.out_proj": "ssm_out", "eh_proj": "nextn.eh_proj", "enorm": "nextn.enorm",
         "hnorm": "nextn.hnorm", "embed_tokens": "nextn.embed_tokens",
         "shared_head.norm": "nextn.shared_head_norm", "shared_head.head": "nextn.shared_head_head"}
WHOLE = {"linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias",
         "mlp.gate.e_score_correction_bias": "exp_probs_b.bias"}
# Qwen's names of the head's parts, in terms of the others'.
HEAD = {"mtp.fc": "eh_proj", "mtp.norm": "shared_head.norm", "mtp.pre_fc_norm_embedding": "enorm",
        "mtp.pre_fc_norm_hidden": "hnorm"}


def layered(name, layers):
    """A tensor's layer and its name there."""
    stem = name.removesuffix(".weight")
    if stem in HEAD:
        return layers, HEAD[stem] + ".weight"
    if name.startswith("mtp.layers.0."):
        return layers, name.removeprefix("mtp.layers.0.")
    _, _, layer, rest = name.split(".", 3)
    return int(layer), rest


def stacked(tensors, prefix, part, experts):
    """[experts, outputs, inputs], taken from tensors of one expert each or of all."""
    if f"{prefix}0.{part}.weight" in tensors:
        return torch.stack([tensors.pop(f"{prefix}{i}.{part}.weight") for i in range(experts)])
    if part == "down_proj":
        return tensors.pop(prefix + part)
    both = tensors[prefix + "gate_up_proj"].chunk(2, dim=1)
    return both[0 if part == "gate_proj" else 1].contiguous()


def tensors_of(folder, arch, config):
    given = safetensors.torch.load_file(folder / "model.safetensors")
    layers, experts = config["num_hidden_layers"], config.get("n_routed_experts", 0)
    out = {}

    def add(name, values):
        vector = values.dim() == 1 or name.endswith("ssm_conv1d.weight")
        kind, dtype = (gguf.GGML_F32, torch.float32) if vector else (gguf.GGML_BF16, torch.bfloat16)
        data = values.to(dtype).contiguous().view(torch.uint8).numpy().tobytes()
        out[name] = (list(values.shape), kind, data)

    for layer in range(layers + 1):
        prefix = f"model.layers.{layer}.mlp.experts."
        for part in ("gate_proj", "up_proj", "down_proj"):
            if any(name.startswith(prefix) for name in given):
                add(f"blk.{layer}.ffn_{part.removesuffix('_proj')}_exps.weight",
                    stacked(given, prefix, part, experts))
        given.pop(prefix + "gate_up_proj", None)
    for name, values in given.items():
        stem, _, kind = name.rpartition(".")
        if arch == "qwen35" and "norm" in stem and not stem.endswith("linear_attn.norm"):
            values = values.float() + 1
        if stem in TOP:
            add(f"{TOP[stem]}.{kind}", values)
            continue
        layer, part = layered(name, layers)
        if part in WHOLE:
            add(f"blk.{layer}.{WHOLE[part]}", -values.float().exp() if part.endswith("A_log") else values)
            continue
        stem, _, kind = part.rpartition(".")
        own = PARTS[stem]
        add(f"blk.{layer}.{own}.{kind}", values.squeeze(1) if own == "ssm_conv1d" else values)
    return out


def metadata_of(arch, config):
    def key(name):
        return f"{arch}.{name}"
    u32, f32 = gguf.U32, gguf.F32
    rope = config["rope_parameters"]
    keys = {"general.architecture": (gguf.TEXT, arch),
            key("block_count"): (u32, config["num_hidden_layers"] + 1),
            key("nextn_predict_layers"): (u32, 1),
            key("context_length"): (u32, config["max_position_embeddings"]),
            key("embedding_length"): (u32, config["hidden_size"]),
            key("feed_forward_length"): (u32, config["intermediate_size"]),
            key("attention.head_count"): (u32, config["num_attention_heads"]),
            key("attention.head_count_kv"): (u32, config["num_key_value_heads"]),
            key("attention.key_length"): (u32, config["head_dim"]),
            key("attention.value_length"): (u32, config["head_dim"]),
            key("attention.layer_norm_rms_epsilon"): (f32, config["rms_norm_eps"]),
            key("rope.freq_base"): (f32, rope["rope_theta"]),
            key("rope.dimension_count"):
                (u32, int(config["head_dim"] * rope["partial_rotary_factor"])),
            "tokenizer.ggml.model": (gguf.TEXT, "gpt2"), "tokenizer.ggml.pre": (gguf.TEXT, "gpt-2"),
            "tokenizer.ggml.tokens": (gguf.TEXT, [chr(0x100 + i) for i in range(config["vocab_size"])]),
            "tokenizer.ggml.token_type": (gguf.I32, [1] * config["vocab_size"]),
            "tokenizer.ggml.merges": (gguf.TEXT, [])}
    if arch == "qwen35":
        values = config["linear_num_value_heads"]
        keys |= {key("ssm.conv_kernel"): (u32, config["linear_conv_kernel_dim"]),
                 key("ssm.state_size"): (u32, config["linear_key_head_dim"]),
                 key("ssm.group_count"): (u32, config["linear_num_key_heads"]),
                 key("ssm.time_step_rank"): (u32, values),
                 key("ssm.inner_size"): (u32, values * config["linear_value_head_dim"])}
    else:
        keys |= {key("expert_count"): (u32, config["n_routed_experts"]),
                 key("expert_used_count"): (u32, config["num_experts_per_tok"]),
                 key("expert_feed_forward_length"): (u32, config["moe_intermediate_size"]),
                 key("expert_shared_count"): (u32, config["n_shared_experts"]),
                 key("leading_dense_block_count"): (u32, config["first_k_dense_replace"]),
                 key("expert_gating_func"): (u32, 2),
                 key("expert_weights_scale"): (f32, config["routed_scaling_factor"]),
                 key("expert_weights_norm"): (gguf.BOOL, config["norm_topk_prob"])}
    return keys


def write(folder, config):
    arch = {"qwen3_5_text": "qwen35", "glm4_moe": "glm4moe"}.get(config["model_type"])
    if arch:
        data = gguf.gguf(metadata_of(arch, config), tensors_of(folder, arch, config))
        (folder / "mtp.gguf").write_bytes(data)
