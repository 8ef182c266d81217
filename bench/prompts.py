#!/usr/bin/env python3
"""Seconds of whole prompts beside transformers, on this CPU, in one run.

A model of SmolLM2-135M's shape with random weights in bf16; all tokens of a prompt are attended to.
The two take turns in processes of their own, round by round.

    tools/python-env && build/venv/bin/python bench/prompts.py
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

from whole_model import ROOT, SHAPES, SMALL, run_measured


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


def output_of(command):
    text, errors, _ = run_measured(command)
    return text if text else sys.exit(errors)


def run_transformers(arguments, tokens):
    text = output_of([sys.executable, __file__, "--child", "--files", arguments.files, "--tokens",
                      tokens, "--threads", arguments.threads])
    return json.loads(text.splitlines()[-1])


def run_fasa(arguments, tokens):
    ids = arguments.files / f"ids-{tokens}.json"
    ids.write_text(json.dumps(prompt(tokens)))
    text = output_of(
        [arguments.fasa, "generate", "--model", arguments.files, "--device", "cpu", "--threads",
         arguments.threads, "--preset", "full", "--dtype", "bf16", "--prompt-ids", ids,
         "--max-tokens", 2, "--json"])
    return json.loads(text)["prefill"]["seconds"]


def write_model(folder):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    hidden, inner, layers, heads, kv_heads, dim, vocabulary = SHAPES[SMALL]
    LlamaForCausalLM(LlamaConfig(
        hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=dim,
        vocab_size=vocabulary, max_position_embeddings=32768,
        tie_word_embeddings=True)).to(torch.bfloat16).save_pretrained(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fasa", default=str(ROOT / "build/release/fasa"))
    parser.add_argument("--tokens", type=int, nargs="+", default=[2000, 8000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--files", type=pathlib.Path, default=ROOT / "build/smollm2-bf16",
                        help="folder of the random model, made where it is missing")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(transformers_child(arguments)))
        return
    if not (arguments.files / "config.json").exists():
        write_model(arguments.files)
    print("| tokens | fasa, s (lowest, highest) | transformers, s | times as fast |\n"
          "|---|---|---|---|")
    for tokens in arguments.tokens:
        rounds = [(run_fasa(arguments, tokens), run_transformers(arguments, tokens))
                  for _ in range(arguments.rounds)]
        columns = [f"{statistics.median(times):.2f} ({min(times):.2f}, {max(times):.2f})"
                   for times in zip(*rounds)]
        ratio = statistics.median(peer / ours for ours, peer in rounds)
        print(f"| {tokens} | {' | '.join(columns)} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
