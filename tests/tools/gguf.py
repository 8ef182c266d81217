"""Writes GGUF files with Python's standard library alone: any metadata, or a folder's model."""
import json
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q",
         I64: "q", F64: "d"}
GGML_F32, GGML_BF16 = 0, 30
ALIGNMENT = 32
LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down"}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, given):
    """`given` as a value of a type, or an array of it; the type's number comes first."""
    def one(item):
        return text(item) if kind == TEXT else struct.pack("<" + CODES[kind], item)
    if isinstance(given, list):
        head = struct.pack("<IIQ", ARRAY, kind, len(given))
        return head + b"".join(map(one, given))
    return struct.pack("<I", kind) + one(given)


def gguf(metadata, tensors, version=3):
    """metadata: key -> (type, value or list); tensors: name -> (shape, GGML type, bytes), outputs
    first."""
    out = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(metadata))]
    for key, (kind, given) in metadata.items():
        out += [text(key), value(kind, given)]
    offset = 0
    for name, (shape, kind, data) in tensors.items():
        out += [text(name), struct.pack("<I", len(shape)),
                *(struct.pack("<Q", size) for size in reversed(shape)),
                struct.pack("<IQ", kind, offset)]
        offset += -(-len(data) // ALIGNMENT) * ALIGNMENT
    header = b"".join(out)
    parts = [header, bytes(-len(header) % ALIGNMENT)]
    for _, _, data in tensors.values():
        parts += [data, bytes(-len(data) % ALIGNMENT)]
    return b"".join(parts)


def rotary_pairs(rows, heads):
    """Rows of queries or keys in the order of GGUF's llama architecture: the first and second half
    of a head interleaved."""
    size = len(rows) // heads
    return [rows[head * size + i % 2 * (size // 2) + i // 2]
            for head in range(heads) for i in range(size)]


def llama_tensors(folder, config):
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    entries = json.loads(data[8:8 + size])
    entries.pop("__metadata__", None)
    for name, entry in entries.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        values, shape, kind = data[begin:end], entry["shape"], GGML_BF16
        stem, _, suffix = name.rpartition(".")
        if stem in WHOLE:
            stem = WHOLE[stem]
        else:
            _, _, layer, part = stem.split(".", 3)
            stem = f"blk.{layer}.{LAYER[part]}"
        if len(shape) == 1:  # f32 everywhere
            kind = GGML_F32
            values = b"".join(b"\0\0" + values[i:i + 2] for i in range(0, len(values), 2))
        heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}.get(
            stem.rpartition(".")[2])
        if heads:
            width = 2 * shape[1]
            rows = [values[i:i + width] for i in range(0, len(values), width)]
            values = b"".join(rotary_pairs(rows, config[heads]))
        tensors[f"{stem}.{suffix}"] = (shape, kind, values)
    return tensors


def llama_metadata(folder, config):
    pieces = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    return {"general.architecture": (TEXT, "llama"),
            "general.alignment": (U32, ALIGNMENT),
            "llama.context_length": (U32, config["max_position_embeddings"]),
            "llama.embedding_length": (U32, config["hidden_size"]),
            "llama.block_count": (U32, config["num_hidden_layers"]),
            "llama.feed_forward_length": (U32, config["intermediate_size"]),
            "llama.attention.head_count": (U32, config["num_attention_heads"]),
            "llama.attention.head_count_kv": (U32, config["num_key_value_heads"]),
            "llama.attention.key_length": (U32, config["head_dim"]),
            "llama.attention.value_length": (U32, config["head_dim"]),
            "llama.rope.freq_base": (F32, config["rope_theta"]),
            "llama.attention.layer_norm_rms_epsilon": (F32, config["rms_norm_eps"]),
            "tokenizer.ggml.model": (TEXT, "gpt2"),
            "tokenizer.ggml.pre": (TEXT, "gpt-2"),
            "tokenizer.ggml.tokens": (TEXT, sorted(pieces, key=pieces.get)),
            "tokenizer.ggml.token_type": (I32, [1] * len(pieces)),
            "tokenizer.ggml.merges": (TEXT, []),
            "tokenizer.ggml.eos_token_id": (U32, config["eos_token_id"])}


def of_folder(folder, more=None):
    """A folder's llama model as one GGUF file's bytes, with a byte-level vocabulary without
    merges."""
    config = json.loads((folder / "config.json").read_text())
    metadata = {**llama_metadata(folder, config), **(more or {})}
    return gguf({key: given for key, given in metadata.items() if given is not None},
                llama_tensors(folder, config))
