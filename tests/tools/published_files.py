"""Small GGUF files with the metadata of published ones: the keys, types, order and values of a
header in published/, with fewer and narrower layers, and a small vocabulary that has its special
tokens.

A header: `kv`: key -> [type, value], without a value where it is made here (tokens, types, scores,
merges, chat template); `types` and `tensors`: counts in the published file; `tokens`: special
tokens by their published id, [text, type] where the type is not 3; `begin`, `turn`: tokens around a
message; `ends`: all tokens that end an answer; `extra`, `absent`: tensors that only some files of
an architecture have; `error`: words of the message if the file cannot be opened."""
import functools
import json
import math
import random
import struct

import gguf

NUMBERS = {"str": gguf.TEXT, "bool": gguf.BOOL, "u8": gguf.U8, "i8": gguf.I8, "u16": gguf.U16,
           "i16": gguf.I16, "u32": gguf.U32, "i32": gguf.I32, "u64": gguf.U64, "i64": gguf.I64,
           "f32": gguf.F32, "f64": gguf.F64}
# Type -> number, elements and bytes of a block, offsets of its halves that scale.
TYPES = {"f32": (0, 1, 4, ()), "f16": (1, 1, 2, ()), "bf16": (30, 1, 2, ()),
         "q4_0": (2, 32, 18, (0,)), "q4_1": (3, 32, 20, (0, 2)), "q5_0": (6, 32, 22, (0,)),
         "q5_1": (7, 32, 24, (0, 2)), "q8_0": (8, 32, 34, (0,)), "q2_K": (10, 256, 84, (80, 82)),
         "q3_K": (11, 256, 110, (108,)), "q4_K": (12, 256, 144, (0, 2)),
         "q5_K": (13, 256, 176, (0, 2)), "q6_K": (14, 256, 210, (208,)),
         "iq3_xxs": (18, 256, 98, (0,)), "iq4_nl": (20, 32, 18, (0,)),
         "iq3_s": (21, 256, 110, (0,)), "iq4_xs": (23, 256, 136, (0,)), "mxfp4": (39, 32, 17, ()),
         # of another engine
         "q6_0": (133, 32, 26, ()), "iq5_k": (140, 256, 176, ()), "iq6_k": (141, 256, 212, ()),
         "iq5_ks": (152, 256, 168, ())}
HIDDEN, WIDTH, EXPERT_WIDTH, EXPERTS, RANK = 256, 512, 256, 4, 256

ATTENTION = "attn_norm attn_q attn_k attn_v attn_output "
MLP = "ffn_gate ffn_up ffn_down "
BIASES = "attn_q.bias attn_k.bias attn_v.bias "
NORMS = "attn_q_norm attn_k_norm "
ROUTED = "ffn_gate_inp ffn_gate_exps ffn_up_exps ffn_down_exps "
SHARED = "ffn_gate_shexp ffn_up_shexp ffn_down_shexp "
LINEAR = ("attn_norm attn_qkv attn_gate ssm_conv1d ssm_dt.bias ssm_a ssm_beta ssm_alpha ssm_norm "
          "ssm_out post_attention_norm ")
GEMMA = ATTENTION + NORMS + MLP + "post_attention_norm ffn_norm post_ffw_norm "
NEXTN = ("nextn.eh_proj nextn.embed_tokens nextn.enorm nextn.hnorm nextn.shared_head_head "
         "nextn.shared_head_norm ")
LATENT = "attn_norm attn_q attn_kv_a_mqa attn_kv_a_norm attn_kv_b attn_output ffn_norm "
# Architecture -> tensors of a layer.
LAYERS = {
    "llama": ATTENTION + "ffn_norm " + MLP, "mistral3": ATTENTION + "ffn_norm " + MLP,
    "smollm3": ATTENTION + "ffn_norm " + MLP, "granite": ATTENTION + "ffn_norm " + MLP,
    "qwen2": ATTENTION + BIASES + "ffn_norm " + MLP,
    "qwen3": ATTENTION + NORMS + "ffn_norm " + MLP,
    "qwen3moe": ATTENTION + NORMS + "ffn_norm " + ROUTED,
    "gemma2": ATTENTION + MLP + "post_attention_norm ffn_norm post_ffw_norm ",
    "gemma3": GEMMA, "gemma4": GEMMA + "layer_output_scale ",
    "phi3": "attn_norm attn_qkv attn_output ffn_norm ffn_up ffn_down ",
    "gpt-oss": ATTENTION + BIASES + "attn_output.bias attn_sinks post_attention_norm " + ROUTED +
               "ffn_gate_inp.bias ffn_gate_exps.bias ffn_up_exps.bias ffn_down_exps.bias ",
    "qwen35": MLP, "qwen35moe": ROUTED + SHARED + "ffn_gate_inp_shexp ",
    "qwen3next": ROUTED + SHARED + "ffn_gate_inp_shexp ",
    "glm4moe": ATTENTION + BIASES + "post_attention_norm ", "deepseek2": LATENT}
GEMMA_EXPERTS = ("ffn_gate_up_exps ffn_down_exps ffn_down_exps.scale ffn_gate_inp "
                 "ffn_gate_inp.scale pre_ffw_norm_2 post_ffw_norm_1 post_ffw_norm_2 ")
FULL = ATTENTION + NORMS + "post_attention_norm "


def scaled(kv, architecture):
    """The values of a small model, by the keys behind the architecture's prefix."""
    old = {key.partition(".")[2]: entry[1] for key, entry in kv.items()
           if key.startswith(architecture + ".") and len(entry) > 1}
    new = dict(old)
    pattern = old.get("attention.sliding_window_pattern", [])
    period = pattern.index(False) + 1 if False in pattern else 0
    if architecture == "gemma3":
        period = 6
    layers = old.get("full_attention_interval", 0) or period or 2
    if old.get("attention.shared_kv_layers"):
        layers = 2 * period
        new["attention.shared_kv_layers"] = period
    if "leading_dense_block_count" in old:
        layers = 2 + old.get("nextn_predict_layers", 0)
    windows = "attention.key_length_swa" in old
    heads = 8 if windows or "attention.kv_lora_rank" in old else 4
    size = {"attention.key_length": 64, "attention.value_length": 64,
            "attention.key_length_swa": 32, "attention.value_length_swa": 32}
    if "attention.kv_lora_rank" in old:
        size |= {"attention.key_length": 48, "attention.value_length": 32}
    share = size["attention.key_length"] / old.get(
        "attention.key_length", old["embedding_length"] / old["attention.head_count"])
    size |= {"block_count": layers, "embedding_length": HIDDEN, "attention.head_count": heads,
             "expert_feed_forward_length": EXPERT_WIDTH, "expert_used_count": 2,
             "expert_count": EXPERTS, "expert_group_count": 2, "expert_group_used_count": 1,
             "attention.kv_lora_rank": RANK, "ssm.state_size": 64,
             "ssm.group_count": 4}
    if old.get("expert_shared_feed_forward_length"):
        size["expert_shared_feed_forward_length"] = EXPERT_WIDTH
    if "ssm.group_count" in old:
        rank = 4 * old["ssm.time_step_rank"] // old["ssm.group_count"]
        size |= {"ssm.time_step_rank": rank, "ssm.inner_size": 64 * rank}
    new |= {key: value for key, value in size.items() if key in old}
    narrow = heads / old["attention.head_count"]

    def for_layers(key, small):
        value = old.get(key)
        if isinstance(value, list):
            new[key] = [small(value[layer * len(value) // layers if "length" in key else layer])
                        for layer in range(layers)]
        elif value is not None:
            new[key] = small(value)
    for_layers("attention.head_count_kv", lambda count: max(1, int(count * narrow)))
    for_layers("attention.sliding_window_pattern", lambda flag: flag)
    widths = old.get("feed_forward_length")
    least = min(widths) if isinstance(widths, list) else widths
    for_layers("feed_forward_length", lambda width: WIDTH * width // least)
    for key in ("rope.dimension_count", "rope.dimension_count_swa"):
        if key in old:
            new[key] = int(old[key] * (share if key.endswith("count") else 32 / 256))
    if "rope.dimension_sections" in old:
        new["rope.dimension_sections"] = [int(part * share)
                                          for part in old["rope.dimension_sections"]]
    return new


class Vocabulary:
    """A few pieces, with the header's special tokens among them in their published order."""

    def __init__(self, header):
        kind = header["kv"]["tokenizer.ggml.model"][1]
        special = [(int(number), *(entry if isinstance(entry, list) else (entry, 3)))
                   for number, entry in header["tokens"].items()]
        self.merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("1", "2"),
                       ("12", "3"), ("!", "!"), ("e", "\u0301" if kind == "gemma4" else "Ìģ")]
        if kind == "gpt2":
            blank, plain = "\u0120", [(char, 1) for char in byte_alphabet()]
            self.merges[-1] = ("e", "".join(byte_alphabet()[byte] for byte in b"\xcc"))
        else:
            blank = "\u2581"
            plain = [(f"<0x{byte:02X}>", 6) for byte in range(256)]
            plain += [(chr(byte), 1) for byte in range(33, 127)] + [(blank, 1), ("\u0301", 1)]
        self.merges.append((blank, "he"))
        plain += [(a + b, 1) for a, b in self.merges]
        first = [entry[1:] for entry in special if entry[0] < 1000]
        last = [entry[1:] for entry in special if entry[0] >= 1000]
        tokens = first + plain + last
        self.texts = [text for text, _ in tokens]
        self.types = [number for _, number in tokens]
        self.ids = {number: self.texts.index(text) for number, text, _ in special}

    def values(self):
        return {"tokenizer.ggml.tokens": self.texts, "tokenizer.ggml.token_type": self.types,
                "tokenizer.ggml.scores": [-number for number in range(len(self.texts))],
                "tokenizer.ggml.merges": [" ".join(pair) for pair in self.merges]}


def byte_alphabet():
    """GPT-2's characters of the 256 bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    alphabet = {byte: chr(byte) for byte in shown}
    alphabet |= {byte: chr(256 + place) for place, byte in enumerate(hidden)}
    return [alphabet[byte] for byte in range(256)]


@functools.cache
def random_blocks(kind):
    """Some blocks of small numbers."""
    numbers = random.Random(kind)
    _, _, size, scales = TYPES[kind]
    if kind in ("f16", "bf16"):  # 0.01 to 0.1, signs at random
        high = {"f16": (0x24, 0xa4), "bf16": (0x3c, 0xbc)}[kind]
        return bytes(byte for one in numbers.randbytes(1009) for byte in (one, high[one & 1]))
    blocks = bytearray(numbers.randbytes(17 * size))
    for at in range(0, len(blocks), size):
        for offset in scales:
            blocks[at + offset:at + offset + 2] = struct.pack("<e", 0.001)
        if kind == "mxfp4":
            blocks[at] = 120  # the scale's exponent
    return bytes(blocks)


class Tensors:
    """The tensors of a small model; weights are small random numbers."""

    def __init__(self, header, sizes, vocabulary):
        self.header, self.sizes, self.vocabulary = header, sizes, vocabulary
        self.architecture = header["kv"]["general.architecture"][1]
        self.layers = sizes["block_count"]
        kinds = [kind for kind in header.get("types", {}) if kind != "f32"] or ["bf16"]
        self.kinds = [kind for kind in kinds if kind != "mxfp4"]
        self.expert_kinds = ["mxfp4"] if "mxfp4" in kinds else self.kinds
        self.random = random.Random(1)
        self.made = {}

    def of_layer(self, key, layer, default):
        value = self.sizes.get(key, default)
        return value[layer] if isinstance(value, list) else value

    def shape(self, part, layer):
        """Outputs first."""
        s = self.sizes
        heads = s["attention.head_count"]
        windowed = (self.of_layer("attention.sliding_window_pattern", layer, False) and
                    "attention.key_length_swa" in s)
        ending = "_swa" if windowed else ""
        key = s.get("attention.key_length" + ending, HIDDEN // heads)
        value = s.get("attention.value_length" + ending, key)
        kv_heads = self.of_layer("attention.head_count_kv", layer, heads)
        width = self.of_layer("feed_forward_length", layer, WIDTH)
        experts, narrow = s.get("expert_count", 0), s.get("expert_feed_forward_length", width)
        state, rank = s.get("ssm.state_size", 0), s.get("ssm.time_step_rank", 0)
        inner = rank * state
        mixed = inner + 2 * s.get("ssm.group_count", 0) * state
        shared = s.get("expert_shared_feed_forward_length",
                       narrow * s.get("expert_shared_count", 1))
        rotated = s.get("rope.dimension_count", key)
        gates = 2 if "ssm.state_size" in s else 1  # of queries
        if self.architecture == "phi3":
            width_up, qkv = 2 * width, (heads + 2 * kv_heads) * key
        else:
            width_up, qkv = width, mixed
        shapes = {
            "attn_q": [gates * heads * key, HIDDEN], "attn_k": [kv_heads * key, HIDDEN],
            "attn_v": [kv_heads * value, HIDDEN], "attn_output": [HIDDEN, heads * value],
            "attn_q_norm": [key], "attn_k_norm": [key], "attn_qkv": [qkv, HIDDEN],
            "attn_q.bias": [heads * key], "attn_k.bias": [kv_heads * key],
            "attn_v.bias": [kv_heads * value], "attn_sinks": [heads],
            "ffn_gate": [width, HIDDEN], "ffn_up": [width_up, HIDDEN], "ffn_down": [HIDDEN, width],
            "ffn_gate_inp": [experts, HIDDEN], "ffn_gate_inp.bias": [experts],
            "ffn_gate_up_exps": [experts, 2 * narrow, HIDDEN], "ffn_down_exps.scale": [experts],
            "exp_probs_b.bias": [experts],
            "ffn_gate_exps": [experts, narrow, HIDDEN], "ffn_up_exps": [experts, narrow, HIDDEN],
            "ffn_down_exps": [experts, HIDDEN, narrow], "ffn_gate_exps.bias": [experts, narrow],
            "ffn_up_exps.bias": [experts, narrow], "ffn_down_exps.bias": [experts, HIDDEN],
            "ffn_gate_shexp": [shared, HIDDEN], "ffn_up_shexp": [shared, HIDDEN],
            "ffn_down_shexp": [HIDDEN, shared], "ffn_gate_inp_shexp": [HIDDEN],
            "attn_gate": [inner, HIDDEN], "ssm_conv1d": [mixed, s.get("ssm.conv_kernel", 0)],
            "ssm_dt.bias": [rank], "ssm_a": [rank], "ssm_beta": [rank, HIDDEN],
            "ssm_alpha": [rank, HIDDEN], "ssm_ba": [2 * rank, HIDDEN],
            "ssm_norm": [state], "ssm_out": [HIDDEN, inner],
            "layer_output_scale": [1],
            "inp_gate": [s.get("embedding_length_per_layer_input", 0), HIDDEN],
            "proj": [HIDDEN, s.get("embedding_length_per_layer_input", 0)],
            "attn_kv_a_mqa": [RANK + rotated, HIDDEN], "attn_kv_a_norm": [RANK],
            "attn_kv_b": [heads * (key - rotated + value), RANK],
            "nextn.eh_proj": [HIDDEN, 2 * HIDDEN],
            "nextn.embed_tokens": [self.vocabulary, HIDDEN],
            "nextn.shared_head_head": [self.vocabulary, HIDDEN]}
        return shapes.get(part, [HIDDEN])  # norms, and the output's bias

    def parts(self, layer):
        names = LAYERS[self.architecture]
        if "expert_count" in self.sizes and self.architecture in ("llama", "gemma4"):
            names = names.replace(MLP, ROUTED) if self.architecture == "llama" else \
                names + GEMMA_EXPERTS
        interval = self.sizes.get("full_attention_interval")
        if interval:
            linear = LINEAR
            if self.architecture == "qwen3next":
                linear = linear.replace("ssm_beta ssm_alpha", "ssm_ba")
            names = (FULL if (layer + 1) % interval == 0 else linear) + names
        if "leading_dense_block_count" in self.sizes:
            dense = layer < self.sizes["leading_dense_block_count"]
            names += MLP if dense else ROUTED + SHARED
            if not dense and self.architecture == "glm4moe":
                names += "exp_probs_b.bias "
        if layer >= self.layers - self.sizes.get("nextn_predict_layers", 0):
            names += NEXTN
        if self.sizes.get("embedding_length_per_layer_input"):
            names += "inp_gate proj post_norm "
        full = not self.of_layer("attention.sliding_window_pattern", layer, True)
        if full and "attn_v of full layers" in self.header.get("absent", []):
            names = names.replace("attn_v ", "")
        return names.split()

    def rope_freqs(self):
        pairs = self.sizes["rope.dimension_count"] // 2
        if self.architecture == "gemma4":  # a quarter of the pairs turns
            return [1.0] * (pairs // 4) + [1e30] * (pairs - pairs // 4)
        theta = self.header["kv"]["llama.rope.freq_base"][1]
        divisors = []
        for pair in range(pairs):  # Llama 3.2: factor 32 over 8192 positions
            turns = 8192 * theta ** (-pair / pairs) / (2 * math.pi)
            smooth = min(1.0, max(0.0, (turns - 1) / 3))
            divisors.append(1 / ((1 - smooth) / 32 + smooth))
        return divisors

    def data(self, name, shape, kind):
        count = math.prod(shape)
        if kind == "f32":
            if name.startswith("rope_freqs"):
                values = self.rope_freqs()
            elif "norm" in name or "scale" in name:
                values = [1.0] * count
            elif name.endswith("ssm_a"):
                values = [-0.5] * count
            else:
                values = [self.random.uniform(-0.1, 0.1) for _ in range(count)]
            return struct.pack(f"<{count}f", *values)
        _, elements, size, _ = TYPES[kind]
        needed = count // elements * size
        blocks = random_blocks(kind)
        return (blocks * (needed // len(blocks) + 1))[:needed]

    def add(self, name, shape):
        part = name.split(".", 2)[-1]
        kinds = self.expert_kinds if "_exps" in name else self.kinds
        kind = kinds[len(self.made) % len(kinds)]
        vector = len(shape) == 1 or name.endswith("bias") or "conv1d" in name or \
            part == "ffn_gate_inp.weight"
        if vector or shape[-1] % TYPES[kind][1] != 0:
            kind = "f32"
        self.made[name] = (shape, TYPES[kind][0], self.data(name, shape, kind))

    def all(self):
        extra = self.header.get("extra", [])
        self.add("token_embd.weight", [self.vocabulary, HIDDEN])
        if "output" in extra:
            self.add("output.weight", [self.vocabulary, HIDDEN])
        self.add("output_norm.weight", [HIDDEN])
        if "rope_freqs" in extra:
            self.add("rope_freqs.weight", [self.sizes["rope.dimension_count"] // 2])
        inputs = self.sizes.get("embedding_length_per_layer_input")
        if inputs:
            self.add("per_layer_token_embd.weight", [self.vocabulary, self.layers * inputs])
            self.add("per_layer_model_proj.weight", [self.layers * inputs, HIDDEN])
            self.add("per_layer_proj_norm.weight", [inputs])
        for layer in range(self.layers):
            for part in self.parts(layer):
                suffix = "" if part.endswith((".bias", ".scale")) or part == "ssm_a" else ".weight"
                self.add(f"blk.{layer}.{part}{suffix}", self.shape(part, layer))
        return self.made


def template(header):
    """Messages between the header's tokens; the assistant's ends with the turn."""
    begin, turn = (json.dumps(header[key], ensure_ascii=False) for key in ("begin", "turn"))
    return (f"{{% for m in messages %}}{{{{ {begin} }}}}{{{{ m.role }}}}\n{{{{ m.content }}}}"
            f"{{{{ {turn} }}}}\n{{% endfor %}}{{% if add_generation_prompt %}}{{{{ {begin} }}}}"
            "assistant\n{% endif %}")


def metadata(header, sizes, vocabulary):
    architecture = header["kv"]["general.architecture"][1]
    made = {"tokenizer.chat_template": template(header)}
    if vocabulary:
        made |= vocabulary.values()
    result = {}
    for key, (kind, *given) in header["kv"].items():
        number = NUMBERS[kind[4:].partition(",")[0] if kind.startswith("arr") else kind]
        value = made[key] if key in made else given[0]
        if key.startswith(architecture + "."):
            value = sizes[key.partition(".")[2]]
        if key.endswith(".vocab_size"):
            value = len(vocabulary.texts)
        if key.endswith("_token_id"):
            value = vocabulary.ids[value]
        result[key] = (number, value)
    return result


def small_file(header):
    """-> the file's metadata (key -> (type, value)), tensors and vocabulary, as gguf.gguf() takes
    them."""
    vocabulary = Vocabulary(header) if "tokenizer.ggml.tokens" in header["kv"] else None
    sizes = scaled(header["kv"], header["kv"]["general.architecture"][1])
    tensors = Tensors(header, sizes, len(vocabulary.texts)).all() if vocabulary else {}
    return metadata(header, sizes, vocabulary), tensors, vocabulary
