#!/usr/bin/env python3
"""Whole tokens of whole models over long contexts, beside llama.cpp, on this CPU.

Llama-3.1-8B's and Qwen3.5-9B's shapes with random weights (fasa: int4 in groups of 64, lm_head
int8; llama.cpp: Q4_0 and Q4_K_M, Qwen3.5-9B in the form of a llama model with as many layers, heads
and weights) and SmolLM2-135M-Instruct's own file. The context is loaded, not prefilled: fasa's of
noise (--random-context), llama.cpp's one block again and again; what is stored has no part in how
long reading it takes. Ways take turns in processes of their own, round by round; medians of the
rounds, milliseconds a token, and the largest resident memory of the processes. What the memory
cannot hold is said. fasa's host rows share physical memory where the machine lacks it, which is
said too.

    tools/env python && tools/env peers
    PYTHONPATH=build/peers \\
        build/venv/bin/python bench/whole_model.py --smollm2 FILE.gguf --json FILE
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
STEPS = 8
LLAMA, QWEN = "Llama-3.1-8B, random weights", "Qwen3.5-9B, random weights"
SMALL = "SmolLM2-135M-Instruct"
MODELS = {"llama": LLAMA, "qwen": QWEN, "small": SMALL}
# Hidden, intermediate, layers, query heads, KV heads, head_dim, vocabulary. Qwen3.5-9B: its
# projections of linear attention and its gates are a part of the intermediate width.
SHAPES = {LLAMA: (4096, 14336, 32, 32, 8, 128, 128256),
          QWEN: (4096, 14080, 32, 16, 4, 256, 248320),
          SMALL: (576, 1536, 30, 9, 3, 64, 49152)}
# The defaults of transformers' Qwen3_5TextConfig.
QWEN_CONFIG = {
    "model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 4096,
    "intermediate_size": 12288, "num_hidden_layers": 32, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "hidden_act": "silu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "full_attention_interval": 4}
# Types of most matrices, of those that the mix keeps in more bits, and of the head.
MIXES = {"Q4_0": ("Q4_0", "Q4_0", "Q8_0"), "Q4_K_M": ("Q4_K", "Q6_K", "Q6_K")}
KV_BYTES = {"f16": 2, "q8_0": 34 / 32}

FASA_WAYS = {"fasa": (), "fasa, int8 activations": ("--activations", "int8"),
             "fasa, lean slices": ("--slice", "lean"),
             "fasa, lean slices, int8 activations": ("--slice", "lean", "--activations", "int8"),
             "fasa full": ("--preset", "full"),
             "fasa full, int8 activations": ("--preset", "full", "--activations", "int8")}


# The scales in a block: byte offsets of numbers in f16.
SCALES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q6_K": (208,)}


def write_random_gguf(path, shape, usual, better, head):
    """A llama model of this shape; `better`: the type of the matrices that mixes keep in it."""
    import gguf
    import numpy as np
    hidden, inner, layers, heads, kv_heads, dim, vocabulary = shape
    writer = gguf.GGUFWriter(path, "llama", use_temp_file=False)
    for add, value in ((writer.add_context_length, 1 << 18), (writer.add_embedding_length, hidden),
                       (writer.add_block_count, layers), (writer.add_feed_forward_length, inner),
                       (writer.add_head_count, heads), (writer.add_head_count_kv, kv_heads),
                       (writer.add_key_length, dim), (writer.add_value_length, dim),
                       (writer.add_rope_dimension_count, dim), (writer.add_rope_freq_base, 5e5),
                       (writer.add_layer_norm_rms_eps, 1e-5), (writer.add_vocab_size, vocabulary),
                       (writer.add_tokenizer_model, "no_vocab")):
        add(value)
    random = np.random.default_rng(0)

    def matrix(name, rows, columns, kind):
        number = gguf.GGMLQuantizationType[kind]
        elements, size = gguf.GGML_QUANT_SIZES[number]
        blocks = random.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)
        scale = np.float16(1e-4 if elements == 256 else 0.005)
        for at in SCALES.get(kind, (0,)):
            blocks[:, at:at + 2] = np.frombuffer(scale.tobytes(), np.uint8)
        writer.add_tensor(f"{name}.weight", blocks.reshape(rows, -1), raw_dtype=number)

    def norm(name):
        writer.add_tensor(f"{name}.weight", np.ones(hidden, np.float32))

    matrix("token_embd", vocabulary, hidden, usual)
    norm("output_norm")
    matrix("output", vocabulary, hidden, head)
    for layer in range(layers):
        at = f"blk.{layer}"
        kept = (better if layer < layers // 8 or layer >= 7 * layers // 8 or layer % 3 == 2
                else usual)
        norm(f"{at}.attn_norm")
        norm(f"{at}.ffn_norm")
        matrix(f"{at}.attn_q", heads * dim, hidden, usual)
        matrix(f"{at}.attn_k", kv_heads * dim, hidden, usual)
        matrix(f"{at}.attn_v", kv_heads * dim, hidden, kept)
        matrix(f"{at}.attn_output", hidden, heads * dim, usual)
        matrix(f"{at}.ffn_gate", inner, hidden, usual)
        matrix(f"{at}.ffn_up", inner, hidden, usual)
        matrix(f"{at}.ffn_down", hidden, inner, kept)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_child(arguments):
    """In a process of its own: prints milliseconds a token."""
    import ctypes

    import llama_cpp
    import peer_llama
    llama_cpp.llama_log_set(peer_llama._quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(
        os.fsencode(arguments.file), llama_cpp.llama_model_default_params())
    blocks = max(1, arguments.tokens // peer_llama.BLOCK)
    context = peer_llama.Context(model, blocks, arguments.threads, arguments.kv)
    context.token_seconds()  # starts the threads
    print(json.dumps(
        {"ms": 1e3 * statistics.median(context.token_seconds() for _ in range(STEPS))}))


def run_measured(command):
    """(output or None, the end of its errors, peak of resident memory in bytes)."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        text = out.read().decode() if process.returncode == 0 else None
        return text, err.read().decode(errors="replace")[-300:], usage.ru_maxrss * 1024


def run_fasa(arguments, model, tokens, flags):
    end = ["--logit-bias", "2:-inf"]  # of SmolLM2's turn
    subject = {SMALL: ["--model", arguments.smollm2, "--dtype", "bf16", *end],
               LLAMA: ["--geometry", "Llama-3.1-8B", "--weights", "int4"],
               QWEN: ["--geometry", arguments.files, "--weights", "int4", "--dtype",
                      "bf16"]}[model]
    command = [arguments.fasa, "generate", *subject, "--device", "cpu", "--threads",
               arguments.threads, "--random-context", tokens, "--random-prompt", 1, "--max-tokens",
               STEPS + 1, "--json", *flags]
    text, errors, peak = run_measured(command)
    if text is None:
        return {"failed": errors}
    report = json.loads(text)
    shared = report["memory"]["host_rows_share_bytes"]
    return {"ms": statistics.median(report["decode"]["step_ms"]), "peak_bytes": peak,
            **({"host_rows_share_bytes": shared} if shared else {})}


def run_llama(arguments, file, tokens, kv):
    command = [sys.executable, __file__, "--child", "--file", file, "--tokens", tokens, "--kv", kv,
               "--threads", arguments.threads]
    text, errors, peak = run_measured(command)
    if text is None:
        return {"failed": errors}
    return {"ms": json.loads(text)["ms"], "peak_bytes": peak}


def memory_bytes():
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def ways_of(arguments, model, tokens, files):
    """name -> function that measures it once."""
    ways = {name: lambda flags=flags: run_fasa(arguments, model, tokens, flags)
            for name, flags in FASA_WAYS.items() if model == LLAMA or "slices" not in name}
    if not files:
        return ways
    for name, file in files.items():
        for kv, width in KV_BYTES.items():
            _, _, layers, _, kv_heads, dim, _ = SHAPES[model]
            needed = file.stat().st_size + 2 * layers * kv_heads * dim * width * tokens
            label = f"llama.cpp {name}, {kv} KV"
            if needed > 0.95 * memory_bytes():
                ways[label] = lambda needed=needed: {
                    "failed": f"{needed / 2**30:.1f} GiB are more than this machine has"}
            else:
                ways[label] = lambda file=file, kv=kv: run_llama(arguments, file, tokens, kv)
    return ways


def compare(arguments, model, tokens, files):
    rounds = {}
    ways = ways_of(arguments, model, tokens, files)
    for _ in range(arguments.rounds):
        for name, measure in ways.items():
            if "failed" not in rounds.get(name, [{}])[-1]:
                rounds.setdefault(name, []).append(measure())
                print(model, tokens, name, rounds[name][-1], file=sys.stderr, flush=True)
    results = {}
    for name, found in rounds.items():
        if "failed" in found[-1]:
            results[name] = found[-1]
            continue
        times = [one["ms"] for one in found]
        results[name] = {**found[-1], "ms": statistics.median(times), "low": min(times),
                         "high": max(times)}
    return results


def print_table(model, tokens, results):
    print(f"\n{model}, {tokens} tokens of context\n")
    print("| way | ms a token (lowest, highest) | peak memory |\n|---|---|---|")
    for name, found in results.items():
        if "failed" in found:
            print(f"| {name} | not run: {found['failed'].strip().splitlines()[-1]} | |")
            continue
        shared = ", host rows share memory" if "host_rows_share_bytes" in found else ""
        print(f"| {name} | {found['ms']:.1f} ({found['low']:.1f}, {found['high']:.1f}) | "
              f"{found['peak_bytes'] / 2**30:.2f} GiB{shared} |", flush=True)


def files_of(arguments, short, model):
    """type -> llama.cpp's file."""
    if model == SMALL:
        return {"Q4_1": pathlib.Path(arguments.smollm2)}
    files = {}
    for name, types in MIXES.items():
        files[name] = arguments.files / f"{short}-random.{name}.gguf"
        if not files[name].exists():
            write_random_gguf(files[name], SHAPES[model], *types)
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fasa", default=str(ROOT / "build/release/fasa"))
    parser.add_argument("--smollm2", help="SmolLM2-135M-Instruct.Q4_1.gguf; without it that model "
                        "is left out")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 32768, 131072])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", choices=tuple(MODELS), help="one of the models")
    parser.add_argument("--no-llama", action="store_true", help="without llama.cpp")
    parser.add_argument("--files", type=pathlib.Path, default=ROOT / "build/whole_model",
                        help="folder of the random files, 20 GB, made where they are missing")
    parser.add_argument("--json")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--kv", choices=tuple(KV_BYTES), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        arguments.tokens = arguments.tokens[0]
        sys.path.insert(0, str(HERE))
        return llama_child(arguments)
    arguments.files.mkdir(parents=True, exist_ok=True)
    (arguments.files / "config.json").write_text(json.dumps(QWEN_CONFIG))
    everything = []
    for short, model in MODELS.items():
        if arguments.only not in (None, short) or (model == SMALL and not arguments.smollm2):
            continue
        files = {} if arguments.no_llama else files_of(arguments, short, model)
        for tokens in arguments.tokens:
            results = compare(arguments, model, tokens, files)
            print_table(model, tokens, results)
            everything.append({"model": model, "tokens": tokens, "ways": results})
            if arguments.json:
                pathlib.Path(arguments.json).write_text(json.dumps(everything, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
