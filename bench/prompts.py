#!/usr/bin/env python3
"""Seconds of whole prompts beside llama.cpp and transformers, on this CPU, in one run.

SmolLM2-135M-Instruct's own file and a model of Llama-3.2-1B's shape with random weights in Q4_0, by
fasa (its own choice of type, and bf16) and llama.cpp (f16 KV, flash attention); SmolLM2's shape
with random weights in bf16 by fasa and transformers. All tokens of a prompt are attended to. Ways
take turns in processes of their own, round by round.

    tools/python-env && tools/peers-env
    PYTHONPATH=build/peers build/venv/bin/python bench/prompts.py --smollm2 FILE.gguf
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

from whole_model import ROOT, SHAPES, SMALL, run_measured, write_random_gguf

ONE_B = "Llama-3.2-1B, random weights"
SHAPES[ONE_B] = (2048, 8192, 16, 32, 8, 64, 128256)
PIECE = 512  # tokens that llama.cpp takes at a time, as it does by default


def prompt(tokens):
    return [(7919 * i + 13) % 32000 + 3 for i in range(tokens)]


def llama_child(arguments):
    import ctypes

    import llama_cpp
    import peer_llama
    llama_cpp.llama_log_set(peer_llama._quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(
        os.fsencode(arguments.file), llama_cpp.llama_model_default_params())
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = arguments.tokens[0] + PIECE
    settings.n_threads = settings.n_threads_batch = arguments.threads
    settings.flash_attn_type = peer_llama.FLASH_ATTENTION
    context = llama_cpp.llama_init_from_model(model, settings)
    ids = prompt(arguments.tokens[0])

    def read(tokens):
        for first in range(0, len(tokens), PIECE):
            part = tokens[first:first + PIECE]
            values = (llama_cpp.llama_token * len(part))(*part)
            if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(values, len(part))):
                raise RuntimeError("llama.cpp: a step failed")
        llama_cpp.llama_synchronize(context)

    read(ids[:64])  # starts the threads
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    start = time.perf_counter()
    read(ids)
    return time.perf_counter() - start


def transformers_child(arguments):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(arguments.threads)
    model = AutoModelForCausalLM.from_pretrained(arguments.file, dtype=torch.bfloat16).eval()
    ids = torch.tensor([prompt(arguments.tokens[0])])
    with torch.no_grad():
        model(ids[:, :64], logits_to_keep=1)
        start = time.perf_counter()
        model(ids, use_cache=True, logits_to_keep=1)
        return time.perf_counter() - start


CHILDREN = {"llama.cpp": llama_child, "transformers": transformers_child}


def run_child(arguments, kind, file, tokens):
    text, errors, _ = run_measured([sys.executable, __file__, "--child", kind, "--file", file,
                                    "--tokens", tokens, "--threads", arguments.threads])
    return json.loads(text.splitlines()[-1]) if text else sys.exit(errors)


def run_fasa(arguments, file, tokens, dtype):
    ids = arguments.files / f"ids-{tokens}.json"
    ids.write_text(json.dumps(prompt(tokens)))
    text, errors, _ = run_measured(
        [arguments.fasa, "generate", "--model", file, "--device", "cpu", "--threads",
         arguments.threads, "--preset", "full", "--dtype", dtype, "--prompt-ids", ids,
         "--max-context", tokens + 64, "--max-tokens", 2, "--json"])
    return json.loads(text)["prefill"]["seconds"] if text else sys.exit(errors)


def random_folder(folder):
    """A folder of SmolLM2's shape in bf16."""
    from transformers import LlamaConfig, LlamaForCausalLM
    hidden, inner, layers, heads, kv_heads, dim, vocabulary = SHAPES[SMALL]
    if not (folder / "config.json").exists():
        LlamaForCausalLM(LlamaConfig(
            hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=dim,
            vocab_size=vocabulary, max_position_embeddings=32768, tie_word_embeddings=True,
            dtype="bfloat16")).save_pretrained(folder)
    return folder


def models_of(arguments):
    """name -> {way: function of a number of tokens}."""
    def fasa(file, dtype="auto"):
        return lambda tokens: run_fasa(arguments, file, tokens, dtype)

    def peer(kind, file):
        return lambda tokens: run_child(arguments, kind, file, tokens)

    one_b = arguments.files / "1B-random.Q4_0.gguf"
    if not one_b.exists():
        write_random_gguf(one_b, SHAPES[ONE_B], "Q4_0", "Q4_0", "Q8_0")
    models = {ONE_B: one_b, **({SMALL: arguments.smollm2} if arguments.smollm2 else {})}
    ways = {name: {"llama.cpp": peer("llama.cpp", file), "fasa": fasa(file),
                   "fasa, bf16": fasa(file, "bf16")} for name, file in models.items()}
    folder = random_folder(arguments.files / "smollm2-bf16")
    ways["SmolLM2's shape, bf16"] = {"transformers": peer("transformers", folder),
                                     "fasa": fasa(folder, "bf16")}
    return ways


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fasa", default=str(ROOT / "build/release/fasa"))
    parser.add_argument("--smollm2", help="SmolLM2-135M-Instruct.Q4_1.gguf; without it that model "
                        "is left out")
    parser.add_argument("--tokens", type=int, nargs="+", default=[2000, 8000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--files", type=pathlib.Path, default=ROOT / "build/whole_model",
                        help="folder of the random models, made where they are missing")
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(CHILDREN[arguments.child](arguments)))
        return
    arguments.files.mkdir(parents=True, exist_ok=True)
    print("| model | tokens | way | seconds (lowest, highest) | times as fast as the first |\n"
          "|---|---|---|---|---|")
    for name, ways in models_of(arguments).items():
        for tokens in arguments.tokens:
            rounds = [{way: run(tokens) for way, run in ways.items()}
                      for _ in range(arguments.rounds)]
            first = next(iter(ways))
            for way in ways:
                times = [one[way] for one in rounds]
                ratio = statistics.median(one[first] / one[way] for one in rounds)
                print(f"| {name} | {tokens} | {way} | {statistics.median(times):.2f} "
                      f"({min(times):.2f}, {max(times):.2f}) | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
