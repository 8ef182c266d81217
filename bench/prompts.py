#!/usr/bin/env python3
"""Seconds of whole prompts beside transformers or llama.cpp, on this CPU, in one run.

Without --llama-cpp: SmolLM2-135M's shape with random weights in bf16, beside transformers. With it:
a GGUF file that both read (--model), or one with random weights in Q4_0 of Llama-3.2-1B's shape
(--shape 1b) or of SmolLM2's (--shape small), of as many layers as --layers says. All tokens of a
prompt are attended to. The two take turns in processes of their own, round by round.

    tools/env python && tools/env peers
    PYTHONPATH=build/peers build/venv/bin/python bench/prompts.py [--llama-cpp]
"""
import argparse
import ctypes
import json
import os
import pathlib
import statistics
import sys
import time

from whole_model import ROOT, SHAPES, SMALL, run_measured, write_random_gguf

# As whole_model.SHAPES.
SHAPES_OF_FILES = {"small": SHAPES[SMALL], "1b": (2048, 8192, 16, 32, 8, 64, 128256)}
BATCH = 2048  # of llama.cpp, its default


def prompt(tokens):
    return [(7919 * i + 13) % 32000 + 3 for i in range(tokens)]


def transformers_child(arguments):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(arguments.threads)
    model = AutoModelForCausalLM.from_pretrained(arguments.files, dtype=torch.bfloat16).eval()
    ids = torch.tensor([prompt(arguments.tokens[0])])
    with torch.no_grad():
        model(ids[:, :64], logits_to_keep=1)
        start = time.perf_counter()
        model(ids, use_cache=True, logits_to_keep=1)
        return time.perf_counter() - start


def llama_child(arguments):
    import llama_cpp
    import peer_llama
    llama_cpp.llama_log_set(peer_llama._quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(os.fsencode(arguments.model),
                                                 llama_cpp.llama_model_default_params())
    ids = prompt(arguments.tokens[0])
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx, settings.n_batch = len(ids) + BATCH, BATCH
    settings.n_threads = settings.n_threads_batch = arguments.threads
    settings.flash_attn_type = peer_llama.FLASH_ATTENTION
    context = llama_cpp.llama_init_from_model(model, settings)

    def decode(part):
        array = (llama_cpp.llama_token * len(part))(*part)
        peer_llama._require(
            llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(part))) == 0,
            "a prompt")
        llama_cpp.llama_synchronize(context)

    decode(ids[:64])  # starts the threads
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    start = time.perf_counter()
    for first in range(0, len(ids), BATCH):
        decode(ids[first:first + BATCH])
    return time.perf_counter() - start


def output_of(command):
    text, errors, _ = run_measured(command)
    return text if text else sys.exit(errors or f"{command[0]} failed")


def run_peer(arguments, model, tokens):
    text = output_of([sys.executable, __file__, "--child", "--files", arguments.files, "--tokens",
                      tokens, "--threads", arguments.threads, "--model", model,
                      *(["--llama-cpp"] if arguments.llama_cpp else [])])
    return json.loads(text.splitlines()[-1])


def run_fasa(arguments, model, tokens):
    ids = arguments.files / f"ids-{tokens}.json"
    ids.write_text(json.dumps(prompt(tokens)))
    text = output_of(
        [arguments.fasa, "generate", "--model", model, "--device", "cpu", "--threads",
         arguments.threads, "--preset", "full", "--prompt-ids", ids, "--max-tokens", 2, "--json",
         *([] if arguments.llama_cpp else ["--dtype", "bf16"])])
    return json.loads(text)["prefill"]["seconds"]


def write_folder(folder):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    hidden, inner, layers, heads, kv_heads, dim, vocabulary = SHAPES[SMALL]
    LlamaForCausalLM(LlamaConfig(
        hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=dim,
        vocab_size=vocabulary, max_position_embeddings=32768,
        tie_word_embeddings=True)).to(torch.bfloat16).save_pretrained(folder)


def model_of(arguments):
    """The path of the model, made where it is missing."""
    arguments.files.mkdir(parents=True, exist_ok=True)
    if not arguments.llama_cpp:
        if not (arguments.files / "config.json").exists():
            write_folder(arguments.files)
        return arguments.files
    if arguments.model:
        return arguments.model
    shape = SHAPES_OF_FILES[arguments.shape]
    layers = arguments.layers or shape[2]
    path = arguments.files / f"{arguments.shape}-{layers}.gguf"
    if not path.exists():
        write_random_gguf(path, (*shape[:2], layers, *shape[3:]), "Q4_0", "Q4_0", "Q8_0")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fasa", default=str(ROOT / "build/release/fasa"))
    parser.add_argument("--llama-cpp", action="store_true", help="beside llama.cpp")
    parser.add_argument("--model", help="GGUF file, with --llama-cpp")
    parser.add_argument("--shape", choices=tuple(SHAPES_OF_FILES), default="1b",
                        help="of the random file, without --model")
    parser.add_argument("--layers", type=int, help="of the random file; all of the shape's if left")
    parser.add_argument("--tokens", type=int, nargs="+", default=[2000, 8000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--files", type=pathlib.Path, default=ROOT / "build/prompts",
                        help="folder of the random models, made where they are missing")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child = llama_child if arguments.llama_cpp else transformers_child
        print(json.dumps(child(arguments)))
        return
    model = model_of(arguments)
    peer = "llama.cpp" if arguments.llama_cpp else "transformers"
    print(f"| tokens | fasa, s (lowest, highest) | {peer}, s | times as fast |\n"
          "|---|---|---|---|")
    for tokens in arguments.tokens:
        rounds = [(run_fasa(arguments, model, tokens), run_peer(arguments, model, tokens))
                  for _ in range(arguments.rounds)]
        columns = [f"{statistics.median(times):.2f} ({min(times):.2f}, {max(times):.2f})"
                   for times in zip(*rounds)]
        ratio = statistics.median(peer / ours for ours, peer in rounds)
        print(f"| {tokens} | {' | '.join(columns)} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
