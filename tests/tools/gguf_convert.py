"""GGUF files of the golden folders, by the rules of llama.cpp's converter, with Python's standard
library alone; and files read back, to change what others write otherwise."""
import json
import math
import re
import struct

import gguf
from gguf import ARRAY, BOOL, CODES, F32, GGML_F32, I32, TEXT, U32

# In a layer, without ".weight" and ".bias".
COMMON = {**gguf.LAYER, "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
          "mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp"}
for _part in ("gate", "up", "down"):
    for _shared in ("mlp.shared_expert", "mlp.shared_experts"):
        COMMON[f"{_shared}.{_part}_proj"] = f"ffn_{_part}_shexp"
PLAIN_MLP = {"mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}
OWN = {
    "glm4": {"post_self_attn_layernorm": "post_attention_norm", "mlp.gate_up_proj": "ffn_up",
             "post_mlp_layernorm": "post_ffw_norm"},
    "glm4_moe": {"post_attention_layernorm": "post_attention_norm"},
    "exaone4": {"post_attention_layernorm": "post_attention_norm",
                "post_feedforward_layernorm": "post_ffw_norm"},
    "seed_oss": {"post_attention_layernorm": "post_attention_norm"},
    "starcoder2": {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
    "phi": {"mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down", "self_attn.dense": "attn_output"},
    "gpt_neox": {**PLAIN_MLP, "attention.query_key_value": "attn_qkv",
                 "attention.dense": "attn_output"},
    "bloom": {**PLAIN_MLP, "self_attention.query_key_value": "attn_qkv",
              "self_attention.dense": "attn_output"},
    "mpt": {"norm_1": "attn_norm", "norm_2": "ffn_norm", "attn.Wqkv": "attn_qkv",
            "attn.out_proj": "attn_output", "ffn.up_proj": "ffn_up", "ffn.down_proj": "ffn_down"},
    "deepseek_v2": {"self_attn.q_a_proj": "attn_q_a", "self_attn.q_b_proj": "attn_q_b",
                    "self_attn.q_a_layernorm": "attn_q_a_norm",
                    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
                    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
                    "self_attn.kv_b_proj": "attn_kv_b"},
    "mixtral": {"block_sparse_moe.gate": "ffn_gate_inp"},
}
TOP = {**gguf.WHOLE, "model.final_layernorm": "output_norm", "gpt_neox.embed_in": "token_embd",
       "gpt_neox.final_layer_norm": "output_norm", "embed_out": "output",
       "transformer.word_embeddings": "token_embd", "transformer.ln_f": "output_norm",
       "transformer.word_embeddings_layernorm": "token_embd_norm",
       "transformer.wte": "token_embd", "transformer.norm_f": "output_norm"}
ARCHITECTURES = {"phi": "phi2", "gpt_neox": "gptneox", "deepseek_v2": "deepseek2",
                 "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "glm4_moe": "glm4moe",
                 "mixtral": "llama"}
EXPERT = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up",
          "w2": "down"}


def values_of(folder):
    """name -> (shape, values) of a safetensors file in bf16 or f32."""
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    entries = json.loads(data[8:8 + size])
    entries.pop("__metadata__", None)
    found = {}
    for name, entry in entries.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        raw = data[begin:end]
        if entry["dtype"] == "BF16":
            raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
        else:
            assert entry["dtype"] == "F32", entry
        found[name] = (entry["shape"], list(struct.unpack(f"<{len(raw) // 4}f", raw)))
    return found


def rows(shape, values):
    width = math.prod(shape[1:])
    return [values[i:i + width] for i in range(0, len(values), width)]


def flat(lists):
    return [value for one in lists for value in one]


def stacked(shape, values, heads):
    """Query, key and value of each head side by side -> all queries, all keys, all values."""
    size = shape[0] // (3 * heads)
    all_rows = rows(shape, values)
    return flat(all_rows[(head * 3 + part) * size + i]
                for part in range(3) for head in range(heads) for i in range(size))


def converted(config, name, shape, values):
    """The file's name of a tensor, and its values in the file's order."""
    kind = config["model_type"]
    stem, _, end = name.rpartition(".")
    if stem in TOP:
        return f"{TOP[stem]}.{end}", values
    layer, part = re.fullmatch(r"(?:model\.layers|gpt_neox\.layers|transformer\.h|"
                               r"transformer\.blocks)\.(\d+)\.(.*)", name).groups()
    if part == "mlp.gate.e_score_correction_bias":
        return f"blk.{layer}.exp_probs_b.bias", values
    part = part.rpartition(".")[0]
    own = OWN.get(kind, {}).get(part) or COMMON[part]
    heads = config.get("num_attention_heads") or config.get("n_head")
    if own == "attn_qkv" and kind in ("gpt_neox", "bloom"):
        values = stacked(shape, values, heads)
    if kind == "mixtral" and own in ("attn_q", "attn_k"):
        count = heads if own == "attn_q" else config["num_key_value_heads"]
        values = flat(gguf.rotary_pairs(rows(shape, values), count))
    return f"blk.{layer}.{own}.{end}", values


def tensors_of(folder, config, one_by_one=False):
    """`one_by_one`: experts as in files of 2023."""
    tensors, parts = {}, {}
    for name, (shape, values) in values_of(folder).items():
        found = re.fullmatch(r"model\.layers\.(\d+)\.(?:mlp|block_sparse_moe)\.experts\.(\d+)\."
                             r"(\w+)\.weight", name)
        if found and one_by_one:
            layer, expert, part = found.groups()
            add(tensors, f"blk.{layer}.ffn_{EXPERT[part]}.{expert}.weight", shape, values)
            continue
        norms = re.fullmatch(r"model\.layers\.(\d+)\.self_attn\.([qk])_layernorm\.norms\.(\d+)\."
                             r"weight", name)
        if found or norms:
            layer, *ids = (found or norms).groups()
            number, part = (ids[0], f"ffn_{EXPERT[ids[1]]}_exps") if found else (
                ids[1], f"attn_{ids[0]}_norm")
            parts.setdefault(f"blk.{layer}.{part}.weight", {})[int(number)] = (shape, values)
            continue
        own, stored = converted(config, name, shape, values)
        add(tensors, own, shape, stored)
    for name, members in parts.items():
        shape = members[0][0]
        add(tensors, name, [len(members), *shape], flat(members[i][1] for i in range(len(members))))
    return tensors


def add(tensors, name, shape, values):
    tensors[name] = (shape, GGML_F32, struct.pack(f"<{len(values)}f", *values))


def metadata_of(config):
    kind = config["model_type"]
    arch = ARCHITECTURES.get(kind, kind)
    hidden = config.get("hidden_size") or config.get("d_model")
    heads = (config.get("num_attention_heads") or config.get("n_head") or config.get("n_heads"))
    rope = config.get("rope_parameters") or {}
    keys = {"context_length": (U32, config.get("max_position_embeddings") or 256),
            "embedding_length": (U32, hidden),
            "block_count": (U32, config.get("num_hidden_layers") or config.get("n_layer") or
                            config.get("n_layers")),
            "feed_forward_length": (U32, config.get("intermediate_size") or 4 * hidden),
            "attention.head_count": (U32, heads)}
    rms = config.get("rms_norm_eps")
    eps = [config[key] for key in ("layer_norm_eps", "norm_epsilon", "layer_norm_epsilon")
           if key in config]
    keys["attention.layer_norm_" + ("rms_epsilon" if rms else "epsilon")] = (F32, rms or eps[0])
    if config.get("num_key_value_heads"):
        keys["attention.head_count_kv"] = (U32, config["num_key_value_heads"])
    if config.get("head_dim") and kind != "deepseek_v2":
        keys["attention.key_length"] = keys["attention.value_length"] = (U32, config["head_dim"])
    if rope:
        keys["rope.freq_base"] = (F32, rope["rope_theta"])
        share = rope.get("partial_rotary_factor", 1)
        dim = config.get("head_dim") or hidden // heads
        keys["rope.dimension_count"] = (U32, int(share * dim))
        if rope["rope_type"] in ("yarn", "linear"):
            keys["rope.scaling.type"] = (TEXT, rope["rope_type"])
            keys["rope.scaling.factor"] = (F32, rope["factor"])
        if rope["rope_type"] == "yarn":
            keys["rope.scaling.original_context_length"] = (
                U32, rope["original_max_position_embeddings"])
    return arch, {**keys, **own_keys(kind, config, rope)}


def own_keys(kind, config, rope):
    """What some architectures' files say beside the common keys."""
    number = {key: (U32, config.get(key) or 0) for key in config
              if isinstance(config.get(key), int) or config.get(key) is None}
    keys = {}
    if kind in ("cohere2", "exaone4", "starcoder2") and config.get("sliding_window"):
        keys["attention.sliding_window"] = number["sliding_window"]
    if kind == "cohere2":
        keys |= {"logit_scale": (F32, config["logit_scale"]),
                 "rope.scaling.type": (TEXT, "none")}
    if kind == "exaone4" and config.get("sliding_window"):
        keys["attention.sliding_window_pattern"] = (
            BOOL, [layer == "sliding_attention" for layer in config["layer_types"]])
    if kind in ("gpt_neox", "stablelm"):
        keys["use_parallel_residual"] = (BOOL, config["use_parallel_residual"])
    if kind == "mpt":
        keys["attention.max_alibi_bias"] = (F32, config["attn_config"]["alibi_bias_max"])
    if kind in ("qwen2_moe", "mixtral", "deepseek_v2", "glm4_moe", "qwen3_moe"):
        count = config.get("num_experts") or config.get("num_local_experts") or config.get(
            "n_routed_experts")
        keys |= {"expert_count": (U32, count),
                 "expert_used_count": (U32, config.get("num_experts_per_tok") or 1)}
        if "moe_intermediate_size" in config:
            keys["expert_feed_forward_length"] = number["moe_intermediate_size"]
    if kind == "qwen2_moe":
        keys["expert_shared_feed_forward_length"] = number["shared_expert_intermediate_size"]
    if kind in ("deepseek_v2", "glm4_moe"):
        keys |= {"leading_dense_block_count": number["first_k_dense_replace"],
                 "expert_shared_count": number["n_shared_experts"],
                 "expert_weights_scale": (F32, config["routed_scaling_factor"])}
        if config.get("n_group"):
            keys |= {"expert_group_count": number["n_group"],
                     "expert_group_used_count": number["topk_group"]}
    if kind == "glm4_moe":
        keys |= {"expert_gating_func": (U32, 2),
                 "expert_weights_norm": (BOOL, config["norm_topk_prob"])}
    if kind == "deepseek_v2":
        rotated = config["qk_rope_head_dim"]
        keys |= {"attention.kv_lora_rank": number["kv_lora_rank"],
                 "attention.key_length": (U32, config["qk_nope_head_dim"] + rotated),
                 "attention.value_length": number["v_head_dim"],
                 "rope.dimension_count": (U32, rotated)}
        if config.get("q_lora_rank"):
            keys["attention.q_lora_rank"] = number["q_lora_rank"]
        if rope["rope_type"] == "yarn":
            keys["rope.scaling.yarn_log_multiplier"] = (F32, 0.1 * rope["mscale_all_dim"])
    return keys


def convert(folder, changed=None, one_by_one=False):
    """metadata and tensors of a golden folder's model; `changed`: of its config."""
    config = {**json.loads((folder / "config.json").read_text()), **(changed or {})}
    arch, keys = metadata_of(config)
    metadata = {"general.architecture": (TEXT, arch),
                **{f"{arch}.{key}": value for key, value in keys.items()}}
    return metadata, tensors_of(folder, config, one_by_one)


# GGML type -> elements and bytes of a block.
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
          12: (256, 144), 13: (256, 176), 14: (256, 210), 30: (1, 2), 39: (32, 17)}


def read(data):
    """metadata and tensors of a file's bytes, as gguf.gguf() takes them."""
    at = 8

    def number(code):
        nonlocal at
        at += struct.calcsize(code)
        return struct.unpack("<" + code, data[at - struct.calcsize(code):at])[0]

    def text():
        nonlocal at
        size = number("Q")
        at += size
        return data[at - size:at]

    def value(kind):
        return text() if kind == TEXT else number(CODES[kind])
    count, keys = number("Q"), number("Q")
    metadata, entries = {}, []
    for _ in range(keys):
        key, kind = text().decode(), number("I")
        if kind != ARRAY:
            metadata[key] = (kind, value(kind))
            continue
        kind, size = number("I"), number("Q")
        metadata[key] = (kind, [value(kind) for _ in range(size)])
    for _ in range(count):
        name = text().decode()
        shape = [number("Q") for _ in range(number("I"))][::-1]
        entries.append((name, shape, number("I"), number("Q")))
    begin = at + -at % gguf.ALIGNMENT
    tensors = {}
    for name, shape, kind, offset in entries:
        elements, size = BLOCKS[kind]
        size *= math.prod(shape) // elements
        tensors[name] = (shape, kind, data[begin + offset:begin + offset + size])
    return metadata, tensors


def in_parts(folder, stem, groups, metadata, tensors, count=None):
    """Writes NAME-0000N-of-0000M.gguf, with the tensors that `groups` name; returns the paths."""
    paths = []
    for number, names in enumerate(groups):
        keys = {"split.no": (gguf.U16, number), "split.count": (gguf.U16, count or len(groups)),
                "split.tensors.count": (I32, len(tensors))}
        path = folder / f"{stem}-{number + 1:05}-of-{len(groups):05}.gguf"
        path.write_bytes(gguf.gguf({**(metadata if number == 0 else {}), **keys},
                                   {name: tensors[name] for name in names}))
        paths.append(path)
    return paths
