#!/usr/bin/env python3
"""Makes the golden folders packed-*: small random models whose matrices are packed in each layout
that is read, with the logits that Hugging Face transformers gives for the same weights unpacked.

Needs torch, transformers 5, numpy, safetensors and gguf; run once, the results are committed:
    python3 tests/golden/make_packed.py [NAME...]
What lies where was written down from the layouts' descriptions, apart from the product's readers;
GGUF's blocks are packed and unpacked by the gguf package, and those that it only unpacks are packed
by llama.cpp's quantiser (tools/env peers).
"""

import ctypes
import json
import shutil
import sys

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import save_file

from make_golden import COMMON, HERE, TOKENS, VOCAB, kinds, logits_of, randomise, write_logits

SHAPE = {**COMMON, "hidden_size": 64, "intermediate_size": 96}
NF4 = np.array([-1.0, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004,
                0.0, 0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684,
                1.0], np.float32)
FP4 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6], np.float32)
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def words(codes, bits=4):
    """[..., 32 / bits] codes, the first lowest -> [...] int32."""
    shifts = bits * np.arange(32 // bits, dtype=np.uint32)
    return (codes.astype(np.uint32) << shifts).sum(-1, dtype=np.uint32).view(np.int32)


def padded(array, axis, multiple):
    pads = [(0, 0)] * array.ndim
    pads[axis] = (0, -array.shape[axis] % multiple)
    return np.pad(array, pads)


def by_group(weights, group_of, groups, bits, symmetric):
    """Rounded to nearest: codes [N, K], zeros and scales [N, groups]."""
    most = 2**bits - 1
    scales = np.zeros((weights.shape[0], groups), np.float32)
    zeros = np.zeros(scales.shape, np.int64)
    for group in range(groups):
        part = weights[:, group_of == group]
        if symmetric:
            scales[:, group] = np.abs(part).max(1) / (most / 2)
            zeros[:, group] = (most + 1) // 2
        else:
            low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
            scales[:, group] = (high - low) / most
    scales = scales.astype(np.float16)
    if not symmetric:
        for group in range(groups):
            low = np.minimum(weights[:, group_of == group].min(1), 0)
            zeros[:, group] = np.clip(np.rint(-low / scales[:, group].astype(np.float32)), 1, most)
    scale = scales.astype(np.float32)[:, group_of]
    codes = np.clip(np.rint(weights / scale) + zeros[:, group_of], 0, most).astype(np.int64)
    return codes, zeros, scales, (codes - zeros[:, group_of]).astype(np.float32) * scale


def in_order(inputs, group):
    return np.arange(inputs) // group, -(-inputs // group)


def awq(weights, _, group=32):
    of, groups = in_order(weights.shape[1], group)
    codes, zeros, scales, plain = by_group(weights, of, groups, 4, False)
    pack = lambda a: words(a.T.reshape(a.shape[1], -1, 8)[..., AWQ_ORDER])
    return {".qweight": pack(codes), ".qzeros": pack(zeros), ".scales": scales.T.copy()}, plain


def gptq(weights, random, group=32, bits=4, version=1, shuffled=False):
    of, groups = in_order(weights.shape[1], group)
    if shuffled:
        of = random.permutation(of)
    codes, zeros, scales, plain = by_group(weights, of, groups, bits, False)
    per_word = 32 // bits
    rows = codes.T.reshape(-1, per_word, codes.shape[0]).transpose(0, 2, 1)
    stored = (zeros - (1 if version == 1 else 0)).T.reshape(groups, -1, per_word)
    return {".qweight": words(rows, bits), ".qzeros": words(stored, bits),
            ".scales": scales.T.copy(), ".g_idx": of.astype(np.int32)}, plain


def compressed(weights, random, group=32, bits=4, symmetric=True, shuffled=False):
    of, groups = in_order(weights.shape[1], group)
    if shuffled:
        of = random.permutation(of)
    codes, zeros, scales, plain = by_group(weights, of, groups, bits, symmetric)
    per_word = 32 // bits
    rows = padded(codes, 1, per_word)
    parts = {".weight_packed": words(rows.reshape(rows.shape[0], -1, per_word), bits),
             ".weight_scale": scales, ".weight_shape": np.array(weights.shape, np.int64)}
    if not symmetric:
        columns = padded(zeros, 0, per_word).reshape(-1, per_word, groups).transpose(0, 2, 1)
        parts[".weight_zero_point"] = words(columns, bits)
    if shuffled:
        parts[".weight_g_idx"] = of.astype(np.int32)
    return parts, plain


def four_bits(weights, _, table=NF4, kind="nf4", nested=False, block=64):
    flat = padded(weights.reshape(-1), 0, block).reshape(-1, block)
    absmax = np.abs(flat).max(1).astype(np.float32)
    state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16",
             "shape": list(weights.shape)}
    parts = {".weight.quant_map": table}
    if nested:
        size, offset = 256, float(absmax.mean())
        map_ = np.linspace(-1, 1, 256, dtype=np.float32)
        outer = np.abs(padded(absmax - offset, 0, size).reshape(-1, size)).max(1)
        outer = outer.astype(np.float32)
        spread = np.repeat(outer, size)[:absmax.size]
        codes = np.abs(((absmax - offset) / spread)[:, None] - map_).argmin(1).astype(np.uint8)
        parts |= {".weight.absmax": codes, ".weight.nested_absmax": outer,
                  ".weight.nested_quant_map": map_}
        state |= {"nested_blocksize": size, "nested_offset": offset, "nested_dtype": "float32"}
        absmax = map_[codes] * spread + np.float32(offset)
    else:
        parts[".weight.absmax"] = absmax
    codes = np.abs((flat / absmax[:, None])[..., None] - table).argmin(-1)
    plain = (table[codes] * absmax[:, None]).reshape(-1)[:weights.size].reshape(weights.shape)
    pairs = codes.reshape(-1)[:weights.size].reshape(-1, 2).astype(np.uint8)
    parts[".weight"] = ((pairs[:, 0] << 4) | pairs[:, 1])[:, None]
    text = np.frombuffer(json.dumps(state).encode(), np.uint8)
    parts[f".weight.quant_state.bitsandbytes__{kind}"] = text
    return parts, plain


def mxfp4(weights, _):
    blocks = weights.reshape(weights.shape[0], -1, 32)
    exponents = np.clip(np.floor(np.log2(np.abs(blocks).max(-1))) - 2, -127, 127)
    codes = np.abs((blocks / np.exp2(exponents)[..., None])[..., None] - FP4).argmin(-1)
    plain = (FP4[codes] * np.exp2(exponents)[..., None]).reshape(weights.shape)
    pairs = codes.reshape(weights.shape[0], -1, 2).astype(np.uint8)
    return {".weight_packed": pairs[..., 0] | (pairs[..., 1] << 4),
            ".weight_scale": (exponents + 127).astype(np.uint8)}, plain.astype(np.float32)


def fp8(weights, _, blocks=None, scale=torch.bfloat16):
    """float8 e4m3 with a scale for each block of [outputs, inputs]; None: one for the matrix."""
    height, width = blocks or weights.shape
    values = torch.tensor(weights)
    rows, columns = -(-weights.shape[0] // height), -(-weights.shape[1] // width)
    scales = torch.stack([values[y * height:(y + 1) * height, x * width:(x + 1) * width].abs().max()
                          for y in range(rows) for x in range(columns)])
    scales = (scales / 448).to(scale).reshape(rows, columns)
    spread = scales.to(torch.float32).repeat_interleave(height, 0).repeat_interleave(width, 1)
    spread = spread[:weights.shape[0], :weights.shape[1]]
    codes = (values / spread).clamp(-448, 448).to(torch.float8_e4m3fn)
    codes.view(torch.uint8)[0, :4] = torch.tensor([0x01, 0x87, 0x80, 0x7e])  # subnormals, 0, largest
    parts = {".weight": codes, ".weight_scale_inv": scales if blocks else scales.reshape(())}
    if not blocks:
        parts[".activation_scale"] = torch.tensor(0.01)
    return parts, (codes.to(torch.float32) * spread).numpy()


def fp8_channels(weights, random):
    parts, plain = fp8(weights, random, (1, weights.shape[1]))
    return {".weight": parts[".weight"], ".weight_scale": parts[".weight_scale_inv"]}, plain


def scheme(bits=4, symmetric=True, group=32, actorder=None, kind="int"):
    return {"quant_method": "compressed-tensors", "format": "pack-quantized",
            "quantization_status": "compressed", "ignore": ["lm_head", "re:.*layers.1.mlp.down.*"],
            "config_groups": {"group_0": {
                "targets": ["Linear"], "input_activations": None, "output_activations": None,
                "weights": {"num_bits": bits, "type": kind, "symmetric": symmetric,
                            "strategy": "group", "group_size": group, "actorder": actorder}}}}


LAST = "layers.1.mlp.down_proj"
BNB = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
       "llm_int8_skip_modules": ["lm_head"]}
FP8 = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None,
       "modules_to_not_convert": ["lm_head", LAST]}
FLOAT = {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
         "config_groups": {"group_0": {
             "targets": ["Linear"],
             "weights": {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"},
             "input_activations": {"num_bits": 8, "type": "float", "strategy": "token",
                                   "dynamic": True}}}}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False}
# Name -> packer, quantization_config, matrices that stay in 16 bits.
CASES = {
    "awq": (awq, {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": 32,
                  "zero_point": True, "modules_to_not_convert": ["q_proj"]}, "q_proj"),
    "gptq": (gptq, {**GPTQ, "checkpoint_format": "gptq"}, "none"),
    "gptq-act": (lambda w, r: gptq(w, r, shuffled=True), {**GPTQ, "desc_act": True}, "none"),
    "gptq-v2-8bit": (lambda w, r: gptq(w, r, bits=8, version=2),
                     {**GPTQ, "bits": 8, "checkpoint_format": "gptq_v2"}, "none"),
    "ct": (compressed, scheme(), LAST),
    "ct-ragged": (lambda w, r: compressed(w, r, group=40, symmetric=False),
                  scheme(symmetric=False, group=40), LAST),
    "ct-act": (lambda w, r: compressed(w, r, group=48, symmetric=False, shuffled=True),
               scheme(symmetric=False, group=48, actorder="group"), LAST),
    "ct-8bit": (lambda w, r: compressed(w, r, group=96, bits=8), scheme(bits=8, group=96), LAST),
    "ct-mxfp4": (mxfp4, {**scheme(kind="float"), "format": "mxfp4-pack-quantized"}, LAST),
    "nf4": (four_bits, BNB, "none"),
    "nf4-nested": (lambda w, r: four_bits(w, r, nested=True),
                   {**BNB, "bnb_4bit_use_double_quant": True}, "none"),
    "fp4": (lambda w, r: four_bits(w, r, table=FP4 / 6, kind="fp4"),
            {**BNB, "bnb_4bit_quant_type": "fp4"}, "none"),
    "fp8": (fp8, FP8, LAST),
    "fp8-blocks": (lambda w, r: fp8(w, r, (24, 64), torch.float32),
                   {**FP8, "activation_scheme": "dynamic", "weight_block_size": [24, 64]}, LAST),
    "fp8-ct": (fp8_channels, FLOAT, "none"),
}


def base_model(shape, index, config_class=transformers.LlamaConfig):
    config = config_class(**shape)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(3000 + index)
    randomise(model, generator)
    for parameter in model.parameters():  # as files of 16 bits hold them
        parameter.data = parameter.data.to(torch.float16).to(torch.float32)
    return model, torch.randint(0, VOCAB, (TOKENS,), generator=generator).tolist()


def save_tensors(tensors, path):
    as_torch = lambda t: t if torch.is_tensor(t) else torch.from_numpy(np.ascontiguousarray(t))
    save_file({name: as_torch(values).contiguous() for name, values in tensors.items()}, path)


def save_shards(folder, tensors):
    """By turns, so that the parts of a matrix lie in different files."""
    names = list(tensors)
    index = {}
    for shard in range(2):
        file = f"model-0000{shard + 1}-of-00002.safetensors"
        own = names[shard::2]
        save_tensors({name: tensors[name] for name in own}, folder / file)
        index |= {name: file for name in own}
    text = json.dumps({"metadata": {}, "weight_map": index}, indent=1)
    (folder / "model.safetensors.index.json").write_text(text)


def write_golden(folder, model, tokens):
    write_logits(folder, "logits", tokens, list(range(2, TOKENS, 3)), logits_of(model, tokens))
    print(folder.name, sum(p.stat().st_size for p in folder.iterdir()), "bytes")


def make_folder(name, index):
    pack, quantised, plain_part = CASES[name]
    folder = HERE / f"packed-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    model, tokens = base_model(SHAPE, index)
    model.config.save_pretrained(folder)
    random = np.random.default_rng(index)
    tensors = {}
    for key, parameter in model.named_parameters():
        values = parameter.data.numpy()
        stem = key.removesuffix(".weight")
        if key.endswith("_proj.weight") and plain_part not in key:
            parts, plain = pack(values, random)
            tensors |= {stem + suffix: a for suffix, a in parts.items()}
            parameter.data = torch.tensor(plain)
        else:
            tensors[key] = values.astype(np.float16)
    if name == "ct":
        save_shards(folder, tensors)
    else:
        save_tensors(tensors, folder / "model.safetensors")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = quantised
    path.write_text(json.dumps(config, indent=1) + "\n")
    write_golden(folder, model, tokens)


def make_gpt_oss():
    """As its makers' files: experts' matrices in MXFP4, [experts, outputs, inputs / 32, 16]."""
    folder = HERE / "packed-gpt-oss"
    shutil.rmtree(folder, ignore_errors=True)
    model, tokens = base_model({**SHAPE, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2,
                                "sliding_window": 20}, 99, transformers.GptOssConfig)
    model.config.save_pretrained(folder)
    tensors = {}
    for key, parameter in model.named_parameters():
        values = parameter.data.numpy()
        if key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            rows = np.ascontiguousarray(values.swapaxes(1, 2))
            parts, plain = mxfp4(rows.reshape(-1, rows.shape[-1]), None)
            blocks = (*rows.shape[:2], rows.shape[2] // 32)
            tensors[key + "_blocks"] = parts[".weight_packed"].reshape(*blocks, 16)
            tensors[key + "_scales"] = parts[".weight_scale"].reshape(blocks)
            parameter.data = torch.tensor(np.ascontiguousarray(plain.reshape(rows.shape).swapaxes(1, 2)))
        else:
            tensors[key] = values.astype(np.float16)
    save_tensors(tensors, folder / "model.safetensors")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    path.write_text(json.dumps(config, indent=1) + "\n")
    write_golden(folder, model, tokens)


Q = gguf.GGMLQuantizationType
# The types of a layer's matrices by turns; of the last one rows are no multiple of K's blocks.
TYPES = [Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.BF16, Q.F16, Q.F32,
         Q.Q4_K, Q.Q6_K, Q.Q8_0]
SMALL_TYPES = [Q.Q4_0, Q.Q8_0, Q.BF16]
LOW_TYPES = [Q.Q3_K, Q.Q2_K, Q.IQ4_XS, Q.IQ3_XXS, Q.IQ3_S]  # of fewer bits, mostly


def types_of(arch, width):
    if arch.startswith("low-bits"):
        return [Q.IQ4_NL] if width % 256 else LOW_TYPES
    return TYPES if width == 256 else SMALL_TYPES


NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp"}
# Of architectures that call a layer's tensors otherwise.
OWN_NAMES = {
    "phi3": {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
    "olmo2": {"post_attention_layernorm": "post_attention_norm",
              "post_feedforward_layernorm": "post_ffw_norm"},
    "olmo3": {"post_attention_layernorm": "post_attention_norm",
              "post_feedforward_layernorm": "post_ffw_norm"},
    "gpt-oss": {"post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp"},
    **{gemma: {"post_attention_layernorm": "post_attention_norm",
               "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"} for gemma in ("gemma2", "gemma3")},
    **{gemma: {"post_attention_layernorm": "post_attention_norm",
               "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm",
               "post_feedforward_layernorm_1": "post_ffw_norm_1",
               "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
               "post_feedforward_layernorm_2": "post_ffw_norm_2",
               "router.proj": "ffn_gate_inp", "per_layer_input_gate": "inp_gate",
               "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm"}
       for gemma in ("gemma4", "gemma4-moe")},
    **{qwen: {"post_attention_layernorm": "post_attention_norm",
              "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
              "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
              "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.conv1d": "ssm_conv1d",
              "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
              "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
              "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
              "mlp.shared_expert.up_proj": "ffn_up_shexp",
              "mlp.shared_expert.down_proj": "ffn_down_shexp"}
       for qwen in ("qwen35", "qwen35moe", "qwen3next")},
}
# Names that are whole in the model, and end otherwise in the file.
WHOLE_NAMES = {"linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias",
               "self_attn.sinks": "attn_sinks.weight", "layer_scalar": "layer_output_scale.weight",
               "router.scale": "ffn_gate_inp.scale",
               "router.per_expert_scale": "ffn_down_exps.scale"}
EXPERTS = {"mlp.experts.gate_up_proj": ("ffn_gate_exps", "ffn_up_exps"),
           "mlp.experts.down_proj": ("ffn_down_exps",),
           "experts.gate_up_proj": ("ffn_gate_up_exps",), "experts.down_proj": ("ffn_down_exps",)}
TOP = {"model.embed_tokens_per_layer": "per_layer_token_embd",
       "model.per_layer_model_projection": "per_layer_model_proj",
       "model.per_layer_projection_norm": "per_layer_proj_norm",
       "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def random_blocks(kind, shape, random):
    """K's blocks, which the package only unpacks: any codes, scales of a sane size."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (shape[0] * shape[1] // elements, size), dtype=np.uint8)
    scale = lambda low, high: random.uniform(low, high, len(blocks)).astype(np.float16)[:, None]
    if kind == Q.Q6_K:
        blocks[:, 208:210] = scale(2e-5, 4e-5).view(np.uint8)
    else:
        blocks[:, 0:2] = scale(1e-4, 2e-4).view(np.uint8)
        blocks[:, 2:4] = scale(1e-3, 2e-3).view(np.uint8)
    return blocks.reshape(shape[0], -1)


def quantised_by_llama(kind, values):
    ggml = ctypes.CDLL(str(HERE.parents[1] / "build/peers/llama_cpp/lib/libggml-base.so"))
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = np.empty((len(values), values.shape[1] // elements * size), np.uint8)
    sizes = [ctypes.c_int64(n) for n in (0, *values.shape)]
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    done = ggml.ggml_quantize_chunk(ctypes.c_int(kind), values.ctypes.data_as(ctypes.c_void_p),
                                    data.ctypes.data_as(ctypes.c_void_p), *sizes, None)
    assert done == data.size
    return data


def packed_by_gguf(kind, values, random):
    if kind in (*LOW_TYPES, Q.IQ4_NL):
        data = quantised_by_llama(kind, values)
    elif kind in (Q.Q4_K, Q.Q5_K, Q.Q6_K):
        data = random_blocks(kind, values.shape, random)
    else:
        data = gguf.quantize(values, kind)
    return data, gguf.dequantize(data, kind).astype(np.float32).reshape(values.shape)


# Bytes of a block's f16 numbers.
HALVES = {Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q8_0: [0], Q.Q2_K: [80, 82],
          Q.Q3_K: [108], Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208], Q.IQ4_NL: [0],
          Q.IQ4_XS: [0], Q.IQ3_XXS: [0], Q.IQ3_S: [0], Q.MXFP4: []}


def make_blocks():
    """Each type's blocks of any bytes, and what they unpack to."""
    random = np.random.default_rng(5)
    writer = gguf.GGUFWriter(str(HERE / "gguf-blocks.gguf"), "llama")
    halves = np.array([[0.0123, 0, 65504, 6e-8], [-0.5, 0, 65504, -3e-6]], np.float16)
    for kind, places in HALVES.items():
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        rows = random.integers(0, 256, (4, 256 // elements, size), dtype=np.uint8)
        rows[2] = 255
        if kind == Q.MXFP4:
            rows[..., 0] = np.arange(0, 256, 8).reshape(rows.shape[:2])
        for place, numbers in zip(places, halves):
            rows[..., place:place + 2] = numbers.view(np.uint8).reshape(4, 1, 2)
        rows = rows.reshape(4, -1)
        writer.add_tensor(kind.name, rows, raw_dtype=kind)
        writer.add_tensor(f"{kind.name}.values", gguf.dequantize(rows, kind).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def paired(values, heads):
    """Rows of a head as rotary pairs, as the llama architecture keeps them."""
    shape = values.shape
    return values.reshape(heads, 2, -1, shape[-1]).swapaxes(1, 2).reshape(shape)


def from_pairs(values, heads):
    shape = values.shape
    return values.reshape(heads, -1, 2, shape[-1]).swapaxes(1, 2).reshape(shape)


class LinearOrder:
    """How these architectures keep the value heads of linear attention: in qwen3next's files as in
    the model, but for its stacked projection; in the others' one of each key head by turns."""

    def __init__(self, arch):
        self.turns = arch != "qwen3next"

    def rows(self, values, back=False):
        """Rows by value head."""
        if not self.turns:
            return values
        sharing = VALUE_HEADS // KEY_HEADS
        counts = (sharing, KEY_HEADS) if back else (KEY_HEADS, sharing)
        heads = values.reshape(*counts, -1, *values.shape[1:])
        return np.ascontiguousarray(heads.swapaxes(0, 1)).reshape(values.shape)

    def of(self, part, values, back=False):
        if part in ("linear_attn.in_proj_qkv", "linear_attn.conv1d"):
            keys = 2 * KEY_HEADS * LINEAR_DIM
            return np.concatenate([values[:keys], self.rows(values[keys:], back)])
        if part in ("linear_attn.in_proj_z", "linear_attn.in_proj_b", "linear_attn.in_proj_a",
                    "linear_attn.A_log", "linear_attn.dt_bias"):
            return self.rows(values, back)
        if part == "linear_attn.out_proj":
            return np.ascontiguousarray(self.rows(np.ascontiguousarray(values.T), back).T)
        return values


def write_stacked_inputs(writer, layer, values, random):
    """qwen3next's rows by key head (query, key, values, z), taken apart; returns what was packed."""
    sharing = VALUE_HEADS // KEY_HEADS
    heads = values.reshape(KEY_HEADS, (2 + 2 * sharing) * LINEAR_DIM, -1)
    ends = np.cumsum([LINEAR_DIM, LINEAR_DIM, sharing * LINEAR_DIM])
    parts = [part.reshape(-1, values.shape[1]) for part in np.split(heads, ends, axis=1)]
    plain = []
    for name, stored in (("attn_qkv", np.concatenate(parts[:3])), ("attn_gate", parts[3])):
        data, own = packed_by_gguf(Q.Q8_0, np.ascontiguousarray(stored), random)
        writer.add_tensor(f"blk.{layer}.{name}.weight", data, raw_dtype=Q.Q8_0)
        plain.append(own)
    rows = KEY_HEADS * LINEAR_DIM
    back = [part.reshape(KEY_HEADS, -1, values.shape[1])
            for part in (*np.split(plain[0], [rows, 2 * rows]), plain[1])]
    return torch.tensor(np.concatenate(back, axis=1).reshape(values.shape))


def add_own_keys(arch, writer):
    """What only this architecture's files say; the config's side of it is in GGUF_CASES."""
    if arch == "phi3":
        writer.add_rope_dimension_count(48)
        writer.add_sliding_window(40)
        writer.add_rope_scaling_orig_ctx_len(64)
        factor = (1 + np.log(256 / 64) / np.log(64)) ** 0.5
        writer.add_rope_scaling_attn_factors(float(factor))
        for name, factors in PHI3_FACTORS.items():
            writer.add_tensor(f"rope_factors_{name}.weight", np.array(factors, np.float32))
    if arch == "granite":
        writer.add_attention_scale(0.125)
        writer.add_embedding_scale(3.0)
        writer.add_residual_scale(0.4)
        writer.add_logit_scale(2.5)
    if arch == "gpt-oss":
        writer.add_expert_feed_forward_length(96)
        writer.add_sliding_window(20)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(64)
    if arch in ("qwen3moe", "mixtral", "gpt-oss", "low-bits-moe"):
        writer.add_expert_count(4)
        writer.add_expert_used_count(2)
    if arch in ("qwen3moe", "low-bits-moe"):
        writer.add_expert_feed_forward_length(32)
    if arch == "mistral3":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(8.0)
        writer.add_rope_scaling_orig_ctx_len(11)
        writer.add_rope_scaling_yarn_beta_fast(4.0)
        writer.add_rope_scaling_yarn_beta_slow(0.5)
        writer.add_rope_scaling_yarn_log_mul(1.0)
        writer.add_attn_temperature_scale(0.4)
    if arch == "olmo3":
        writer.add_sliding_window(20)
        writer.add_sliding_window_pattern([True, False])
    if arch == "gemma2":
        writer.add_sliding_window(20)
        writer.add_attn_logit_softcapping(1.5)
        writer.add_final_logit_softcapping(4.0)
    if arch == "gemma3":
        writer.add_sliding_window(20)
        writer.add_sliding_window_pattern(2)
    if arch in ("gemma4", "gemma4-moe"):
        kinds = GGUF_OWN[arch]["layer_types"]
        writer.add_sliding_window(20)
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in kinds])
        writer.add_key_length_swa(16)
        writer.add_value_length_swa(16)
        writer.add_rope_dimension_count(32)
        writer.add_rope_dimension_count_swa(16)
        writer.add_rope_freq_base_swa(1000.0)
        writer.add_final_logit_softcapping(19.0)
        writer.add_shared_kv_layers(GGUF_OWN[arch].get("num_kv_shared_layers", 0))
        writer.add_embedding_length_per_layer_input(GGUF_OWN[arch]["hidden_size_per_layer_input"])
        writer.add_tensor("rope_freqs.weight", np.array([1] * 5 + [1e30] * 11, np.float32))
    if arch in ("gemma4-moe", "qwen35moe", "qwen3next"):
        writer.add_expert_count(4)
        writer.add_expert_used_count(2)
        writer.add_expert_feed_forward_length(32)
    if arch in LINEAR:
        writer.add_rope_dimension_count(8)
        writer.add_ssm_conv_kernel(4)
        writer.add_ssm_state_size(LINEAR_DIM)
        writer.add_ssm_group_count(KEY_HEADS)
        writer.add_ssm_time_step_rank(VALUE_HEADS)
        writer.add_ssm_inner_size(VALUE_HEADS * LINEAR_DIM)
    if arch in ("qwen35moe", "qwen3next"):
        writer.add_expert_shared_feed_forward_length(64)


def write_experts(writer, layer, names, values, quant, random):
    """[experts, rows, columns], of gate and up one below the other; returns what was packed."""
    plain = []
    for name, part in zip(names, np.split(values, len(names), axis=1)):
        packed = [packed_by_gguf(quant, np.ascontiguousarray(expert), random) for expert in part]
        writer.add_tensor(f"blk.{layer}.{name}.weight", np.stack([data for data, _ in packed]),
                          raw_dtype=quant)
        plain.append(np.stack([values for _, values in packed]))
    return torch.tensor(np.concatenate(plain, axis=1))


def write_gpt_oss_experts(writer, layer, part, values, random):
    """[experts, inputs, gates and ups by turns] and [experts, inputs, outputs] in MXFP4, each by
    itself; returns what was packed."""
    plain = np.empty_like(values)
    names = ("ffn_gate_exps", "ffn_up_exps") if "gate_up" in part else ("ffn_down_exps",)
    for at, name in enumerate(names):
        own = values[..., at::len(names)]
        if part.endswith("_bias"):
            writer.add_tensor(f"blk.{layer}.{name}.bias", np.ascontiguousarray(own))
            plain[..., at::len(names)] = own
            continue
        packed = [packed_by_gguf(Q.MXFP4, np.ascontiguousarray(expert.T), random) for expert in own]
        writer.add_tensor(f"blk.{layer}.{name}.weight", np.stack([data for data, _ in packed]),
                          raw_dtype=Q.MXFP4)
        plain[..., at::len(names)] = np.stack([rows.T for _, rows in packed])
    return torch.tensor(plain)


def make_gguf(arch, config_class, index):
    folder = HERE / f"packed-gguf-{arch}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shape = {**COMMON, "hidden_size": 256, "intermediate_size": 256, "head_dim": 64,
             "tie_word_embeddings": arch == "qwen3" or arch.startswith("gemma")}
    shape |= GGUF_OWN.get(arch, {})
    config = config_class(**shape)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(4000 + index)
    randomise(model, generator)
    model.tie_weights()
    random = np.random.default_rng(index)
    writer = gguf.GGUFWriter(str(folder / "model.gguf"), WRITTEN_AS.get(arch, arch))
    writer.add_context_length(256)
    writer.add_embedding_length(shape["hidden_size"])
    writer.add_block_count(shape["num_hidden_layers"])
    widths = [shape["intermediate_size"]] * shape["num_hidden_layers"]
    for i in range(shape["num_hidden_layers"] if shape.get("use_double_wide_mlp") else 0):
        widths[i] *= 2 if i >= len(widths) - shape["num_kv_shared_layers"] else 1
    writer.add_feed_forward_length(widths if len(set(widths)) > 1 else widths[0])
    writer.add_head_count(4)
    full = shape.get("num_global_key_value_heads", 2)
    kv_heads = [full if kind == "full_attention" else 2 for kind in shape.get("layer_types", ())]
    writer.add_head_count_kv(kv_heads if full != 2 else 2)
    writer.add_key_length(shape.get("global_head_dim", shape["head_dim"]))
    writer.add_value_length(shape.get("global_head_dim", shape["head_dim"]))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    add_own_keys(arch, writer)
    pieces = [chr(0x100 + i) for i in range(VOCAB)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(pieces)
    writer.add_token_types([1] * VOCAB)
    writer.add_token_merges([])
    turn = 0
    factors = [one for one in model.named_buffers() if one[0].endswith("layer_scalar")]
    for key, parameter in [*model.named_parameters(), *factors]:
        layer, _, part = key.removeprefix("model.layers.").partition(".")
        if arch == "gpt-oss" and part.startswith("mlp.experts."):
            parameter.data = write_gpt_oss_experts(writer, layer, part, parameter.data.numpy(), random)
            continue
        order = LinearOrder(arch) if part.startswith("linear_attn.") else None
        if part == "linear_attn.in_proj_qkvz.weight":
            parameter.data = write_stacked_inputs(writer, layer, parameter.data.numpy(), random)
            continue
        if order and part in WHOLE_NAMES:
            stored = order.of(part, parameter.data.numpy())
            if part.endswith("A_log"):
                stored = -np.exp(stored)
            writer.add_tensor(f"blk.{layer}.{WHOLE_NAMES[part]}", stored)
            continue
        if part in WHOLE_NAMES:
            writer.add_tensor(f"blk.{layer}.{WHOLE_NAMES[part]}", parameter.data.numpy())
            continue
        if part in EXPERTS:
            turn += 1
            values = parameter.data.numpy()
            types = types_of(arch, values.shape[-1] if arch.startswith("low-bits") else 0)
            parameter.data = write_experts(writer, layer, EXPERTS[part], values,
                                           types[turn % len(types)], random)
            continue
        stem, _, kind = key.rpartition(".")
        values = parameter.data.numpy()
        if stem in TOP:
            name = TOP[stem]
        else:
            _, _, layer, part = stem.split(".", 3)
            name = f"blk.{layer}.{OWN_NAMES.get(arch, {}).get(part) or NAMES[part]}"
        name = f"{name}.{kind}"
        if name.endswith("ssm_conv1d.weight"):
            writer.add_tensor(name, order.of("linear_attn.conv1d", values.squeeze(1)))
            continue
        if values.ndim == 1:
            with_base = arch in ("gemma2", "gemma3") or arch in LINEAR and "ssm_norm" not in name
            base = 1 if with_base else 0  # the model's own addition is in the file's norms
            writer.add_tensor(name, values + np.float32(base))
            continue
        types = types_of(arch, values.shape[1] if arch.startswith("low-bits")
                         else shape["hidden_size"])
        quant = Q.F32 if "ffn_gate_inp" in name else types[turn % len(types)]
        turn += 1
        heads = {"attn_q": 4, "attn_k": 2}.get(name.split(".")[-2]) if arch in PAIRED else None
        stored = paired(values, heads) if heads else order.of(part, values) if order else values
        data, plain = packed_by_gguf(quant, np.ascontiguousarray(stored), random)
        if order:
            plain = order.of(part, plain, back=True)
        parameter.data = torch.tensor(from_pairs(plain, heads) if heads else plain)
        writer.add_tensor(name, data, raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tokens = torch.randint(0, VOCAB, (TOKENS,), generator=generator).tolist()
    write_golden(folder, model, tokens)


PHI3_FACTORS = {"long": [1.5 + i / 4 for i in range(24)], "short": [1.0] * 24}
PAIRED = ("llama", "low-bits", "granite", "smollm3", "mixtral", "mistral3")
WRITTEN_AS = {"mixtral": "llama", "olmo3": "olmo2", "gemma4-moe": "gemma4", "low-bits": "llama",
              "low-bits-moe": "qwen3moe"}
SMALL = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16}
LINEAR = ("qwen35", "qwen35moe", "qwen3next")
KEY_HEADS, VALUE_HEADS, LINEAR_DIM = 2, 6, 16
QWEN35 = {**SMALL, "num_hidden_layers": 3, "layer_types": kinds("lfl"), "linear_num_key_heads": KEY_HEADS,
          "linear_num_value_heads": VALUE_HEADS, "linear_key_head_dim": LINEAR_DIM,
          "linear_value_head_dim": LINEAR_DIM, "linear_conv_kernel_dim": 4,
          "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}
QWEN35_MOE = {**QWEN35, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
              "shared_expert_intermediate_size": 64}
GEMMA4 = {**SMALL, "global_head_dim": 32, "sliding_window": 20, "vocab_size_per_layer_input": VOCAB,
          "final_logit_softcapping": 19.0,
          "rope_parameters": {
              "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
              "full_attention": {"rope_type": "proportional", "rope_theta": 4e4,
                                 "partial_rotary_factor": 0.35}}}
NARROW = {"intermediate_size": 32, "head_dim": 16}
QWEN3_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
             "norm_topk_prob": True}
GGUF_OWN = {
    "low-bits": NARROW,
    "low-bits-moe": {**NARROW, **QWEN3_MOE},
    "granite": {**SMALL, "embedding_multiplier": 3.0, "attention_multiplier": 0.125,
                "residual_multiplier": 0.4, "logits_scaling": 2.5},
    "olmo2": SMALL,
    "olmo3": {**SMALL, "sliding_window": 20, "layer_types": ["sliding_attention", "full_attention"]},
    "mistral3": {**SMALL, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 11,
        "beta_fast": 4.0, "beta_slow": 0.5, "mscale": 1.0, "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.4}},
    "smollm3": {**SMALL, "num_hidden_layers": 4},  # of which the last is not rotated
    "phi3": {"original_max_position_embeddings": 64, "sliding_window": 40,
             "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4,
                                 "partial_rotary_factor": 0.75,
                                 "short_factor": PHI3_FACTORS["short"],
                                 "long_factor": PHI3_FACTORS["long"]}},
    "qwen3moe": {**SMALL, **QWEN3_MOE},
    "mixtral": {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen35": QWEN35,
    "qwen35moe": QWEN35_MOE,
    "qwen3next": {**QWEN35_MOE, "norm_topk_prob": True},
    "gemma2": {**SMALL, "sliding_window": 20, "query_pre_attn_scalar": 16,
               "attn_logit_softcapping": 1.5, "final_logit_softcapping": 4.0},
    "gemma3": {"sliding_window": 20, "sliding_window_pattern": 2, "query_pre_attn_scalar": 64},
    "gemma4": {**GEMMA4, "num_hidden_layers": 6, "layer_types": kinds("sfsfsf"),
               "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
               "hidden_size_per_layer_input": 32},
    "gemma4-moe": {**GEMMA4, "num_hidden_layers": 2, "layer_types": kinds("sf"),
                   "attention_k_eq_v": True, "num_global_key_value_heads": 1,
                   "hidden_size_per_layer_input": 0, "enable_moe_block": True, "num_experts": 4,
                   "top_k_experts": 2, "moe_intermediate_size": 32},
    "gpt-oss": {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 20,
                "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "beta_fast": 32.0,
                                    "beta_slow": 1.0, "truncate": False,
                                    "original_max_position_embeddings": 64}},
}
GGUF_CASES = {"llama": transformers.LlamaConfig, "qwen3": transformers.Qwen3Config,
              "phi3": transformers.Phi3Config, "gemma3": transformers.Gemma3TextConfig,
              "granite": transformers.GraniteConfig, "olmo2": transformers.Olmo2Config,
              "smollm3": transformers.SmolLM3Config, "qwen3moe": transformers.Qwen3MoeConfig,
              "mixtral": transformers.MixtralConfig, "gpt-oss": transformers.GptOssConfig,
              "gemma2": transformers.Gemma2Config, "mistral3": transformers.Ministral3Config,
              "olmo3": transformers.Olmo3Config, "gemma4": transformers.Gemma4TextConfig,
              "gemma4-moe": transformers.Gemma4TextConfig,
              "qwen35": transformers.Qwen3_5TextConfig, "qwen35moe": transformers.Qwen3_5MoeTextConfig,
              "qwen3next": transformers.Qwen3NextConfig,
              "low-bits": transformers.LlamaConfig, "low-bits-moe": transformers.Qwen3MoeConfig}

if __name__ == "__main__":
    wanted = sys.argv[1:] or [*CASES, "mxfp4", *GGUF_CASES, "blocks"]
    if "blocks" in wanted:
        make_blocks()
    if "mxfp4" in wanted:
        make_gpt_oss()
    for case_index, case in enumerate(CASES):
        if case in wanted:
            make_folder(case, case_index)
    for case_index, (case, case_class) in enumerate(GGUF_CASES.items()):
        if case in wanted:
            make_gguf(case, case_class, case_index)
