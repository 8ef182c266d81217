#!/usr/bin/env python3
"""One layer's attention of a whole prompt beside that of others, on this CPU, in one run.

8 KV x 4 query heads, head_dim 128, bf16, batch 1, causal: ours, chunk by chunk as a prefill is
done; PyTorch's scaled_dot_product_attention over all at once, with keys and values repeated for
each query head beforehand (which is not timed) and with enable_gqa; llama.cpp (f16, flash
attention), a layer being half of what a prompt of a narrow model of two layers takes. Products of
its weights are a few per cent of that and are counted with it.

The ways take turns; every turn is a whole prompt. Ours leaves out `append`.

    tools/env python && tools/env peers
    PYTHONPATH=build/release/python:build/peers build/venv/bin/python bench/prefill_peers.py
"""
import argparse
import ctypes
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch

import fasa
from peers import DIM, GROUP, KV_HEADS, QUERY_HEADS, layer_keys, processor, versions

PIECE = 512  # tokens that llama.cpp takes at a time, as it does by default


def queries(tokens):
    return torch.randn(1, QUERY_HEADS, tokens, DIM, generator=torch.Generator().manual_seed(99),
                       dtype=torch.bfloat16)


class Ours:
    def __init__(self, keys, query, chunk, threads):
        self.keys, self.query, self.chunk = keys, query, chunk
        self.tokens = query.shape[2]
        geometry = fasa.Geometry(layers=1, kv_heads=KV_HEADS, query_heads=QUERY_HEADS, head_dim=DIM)
        self.runtime = fasa.Runtime(
            geometry, fasa.Config(preset="full", device="cpu", threads=threads),
            row_dtype="bf16", max_context=self.tokens)
        self.out = torch.empty(self.tokens, QUERY_HEADS, DIM, dtype=torch.bfloat16)

    def turn(self):
        seconds = 0
        sequence = self.runtime.sequence()
        sequence.reserve(self.tokens, self.chunk)
        for first in range(0, self.tokens, self.chunk):
            part = slice(first, min(self.tokens, first + self.chunk))
            self.runtime.begin_step([(sequence, part.stop - part.start, "prefill")])
            self.runtime.append(0, *(x[0, :, part].transpose(0, 1).contiguous() for x in self.keys))
            query = self.query[0, :, part].transpose(0, 1).contiguous()
            start = time.perf_counter()
            self.runtime.attend(0, query, self.out[part])
            seconds += time.perf_counter() - start
            self.runtime.end_step()
        del sequence
        return seconds


class Sdpa:
    def __init__(self, keys, query, repeated):
        self.keys = [x.repeat_interleave(GROUP, 1) for x in keys] if repeated else keys
        self.query, self.gqa, self.out = query, not repeated, None

    def turn(self):
        start = time.perf_counter()
        with torch.inference_mode():
            self.out = torch.nn.functional.scaled_dot_product_attention(
                self.query, *self.keys, is_causal=True, enable_gqa=self.gqa)
        return time.perf_counter() - start


class LlamaPrompt:
    """Whole prompts of llama.cpp's, a layer's share."""

    def __init__(self, tokens, threads):
        import llama_cpp
        import peer_llama
        self.lib, self.tokens, self.layers = llama_cpp, tokens, peer_llama.LAYERS
        self.vocabulary = peer_llama.VOCABULARY
        llama_cpp.llama_log_set(peer_llama._quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.gguf")
            peer_llama.write_model(path, tokens)
            settings = llama_cpp.llama_model_default_params()
            settings.use_mmap = False
            self.model = llama_cpp.llama_model_load_from_file(bytes(path), settings)
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = tokens, PIECE, PIECE
        settings.n_threads = settings.n_threads_batch = threads
        settings.flash_attn_type = peer_llama.FLASH_ATTENTION
        self.context = llama_cpp.llama_init_from_model(self.model, settings)
        self.batch = llama_cpp.llama_batch_init(PIECE, 0, 1)
        if not self.context:
            sys.exit("prefill_peers: llama.cpp made no context")

    def turn(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        start = time.perf_counter()
        for first in range(0, self.tokens, PIECE):
            count = min(PIECE, self.tokens - first)
            self.batch.n_tokens = count
            for i in range(count):
                self.batch.token[i] = (first + i) % self.vocabulary
                self.batch.pos[i] = first + i
                self.batch.n_seq_id[i] = 1
                self.batch.seq_id[i][0] = 0
                self.batch.logits[i] = first + i + 1 == self.tokens
            if self.lib.llama_decode(self.context, self.batch) != 0:
                sys.exit("prefill_peers: llama.cpp refused a piece")
        self.lib.llama_synchronize(self.context)
        return (time.perf_counter() - start) / self.layers


def measure(tokens, given):
    keys, query = layer_keys(tokens, 0), queries(tokens)
    ways = {"fasa": Ours(keys, query, given.chunk, given.threads),
            "sdpa_repeated": Sdpa(keys, query, True), "sdpa_gqa": Sdpa(keys, query, False)}
    if not given.no_llama:
        ways["llama_cpp"] = LlamaPrompt(tokens, given.threads)
    found = {name: [] for name in ways}
    for _ in range(given.rounds):
        for name, way in ways.items():
            found[name].append(way.turn())
            print(f"{tokens:7} {name:14} {found[name][-1]:8.2f} s", file=sys.stderr, flush=True)
    sdpa = ways["sdpa_repeated"].out[0].transpose(0, 1)
    off = (ways["fasa"].out.float() - sdpa.float()).abs().max().item()
    if off > 3e-2:
        sys.exit(f"prefill_peers: ours is {off} off PyTorch's")
    best = min((name for name in found if name != "fasa"),
               key=lambda n: statistics.median(found[n]))
    ratios = [b / a for a, b in zip(found["fasa"], found[best])]
    products = 4 * QUERY_HEADS * DIM * tokens * (tokens + 1) / 2
    return {"tokens": tokens, "seconds": found, "off": off, "best_other": best,
            "times_faster": ratios,
            "TFLOP_per_s": products / statistics.median(found["fasa"]) / 1e12}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 32768])
    parser.add_argument("--chunk", type=int, default=2048, help="tokens of a step of ours")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-llama", action="store_true", help="without llama.cpp")
    parser.add_argument("--json", metavar="FILE", help="write the figures, too")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    report = {"processor": processor(), "threads": given.threads, "chunk": given.chunk,
              "versions": versions(given), "results": [measure(n, given) for n in given.tokens]}
    for one in report["results"]:
        ratios = sorted(one["times_faster"])
        print(f"{one['tokens']} tokens: {statistics.median(one['seconds']['fasa']):.2f} s, "
              f"{one['TFLOP_per_s']:.3f} TFLOP/s, {statistics.median(ratios):.2f} times "
              f"({ratios[0]:.2f} to {ratios[-1]:.2f}) as fast as {one['best_other']}")
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
