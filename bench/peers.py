#!/usr/bin/env python3
"""One decode step's attention beside that of others, on this CPU, in one run.

One layer of 8 KV x 4 query heads, head_dim 128, batch 1, rows in bf16: our full attention, which
reads a group's keys once; FASA as it is by default (every token attended to: the best by rows, all
others by codes), with the selected rows alone, and these chosen by half of the FCs; PyTorch's
scaled_dot_product_attention with enable_gqa and with the group folded into the query length, over
the same keys and values; llama.cpp (f16, flash attention), a layer being half of what a token of a
model of two layers takes at that length more than at a short one.

The ways take turns, round by round. In a turn each passes over its layers after the others have
passed over theirs, so that keys come from memory; the first layer only starts its threads. Medians
over the rounds, ratios within a round.

    tools/env python && tools/env peers
    PYTHONPATH=build/release/python:build/peers \\
        build/venv/bin/python bench/peers.py --json peers.json
"""
import argparse
import datetime
import importlib
import json
import os
import pathlib
import platform
import statistics
import sys
import time

import numpy as np
import torch

import fasa

KV_HEADS, QUERY_HEADS, DIM = 8, 32, 128
GROUP = QUERY_HEADS // KV_HEADS
LAYERS = 3  # of each way; the first starts its threads
CHUNK = 4096
PAUSE = 0.01  # seconds: threads of the way before have gone to sleep


def layer_keys(tokens, layer):
    """Keys and values [1, kv_heads, tokens, dim] of a layer, the same for all ways."""
    generator = torch.Generator().manual_seed(layer)
    return [torch.randn(1, KV_HEADS, tokens, DIM, generator=generator, dtype=torch.bfloat16)
            for _ in range(2)]


def query():
    return torch.randn(1, QUERY_HEADS, 1, DIM, generator=torch.Generator().manual_seed(99),
                       dtype=torch.bfloat16)


class Ours:
    """A runtime whose layers hold the shared keys."""

    def __init__(self, keys, threads, chunks=DIM // 2, k="auto", low_bit="auto", dense=False):
        tokens = keys[0][0].shape[2]
        geometry = fasa.Geometry(layers=LAYERS, kv_heads=KV_HEADS, query_heads=QUERY_HEADS,
                                 head_dim=DIM)
        options = dict(preset="fasa-c", device="cpu", threads=threads, fac_tokens=k,
                       low_bit_tokens=low_bit, slice_dtype="int2", tip_chunks=chunks)
        if dense:
            options["dense_layers"] = list(range(LAYERS))
        dims = np.array([d for pair in geometry.chunks[:chunks] for d in pair], np.int16)
        self.runtime = fasa.Runtime(
            geometry, fasa.Config(**options), row_dtype="bf16", max_context=tokens + 1024,
            slice_dims=np.ascontiguousarray(np.broadcast_to(dims, (LAYERS, KV_HEADS, len(dims)))))
        self.sequence = self.runtime.sequence()
        self.sequence.reserve(tokens + 1024, CHUNK)
        for first in range(0, tokens, CHUNK):
            count = min(CHUNK, tokens - first)
            self.runtime.begin_step([(self.sequence, count, "prefill")])
            for layer, (k, v) in enumerate(keys):
                self.runtime.append(layer, *(x[0, :, first:first + count].transpose(0, 1)
                                             for x in (k, v)))
            self.runtime.end_step()
        self.new = torch.zeros(1, KV_HEADS, DIM, dtype=torch.bfloat16)
        self.query = query()[:, :, 0]
        self.out = torch.empty(1, QUERY_HEADS, DIM)

    def turn(self):
        """Seconds of a layer's attention. The step is taken back: the length stays."""
        seconds = []
        self.runtime.begin_step([(self.sequence, 1, "decode")])
        for layer in range(LAYERS):
            self.runtime.append(layer, self.new, self.new)
            start = time.perf_counter()
            self.runtime.attend(layer, self.query, self.out)
            seconds.append(time.perf_counter() - start)
        self.runtime.abort_step()
        return statistics.mean(seconds[1:])


class Sdpa:
    """PyTorch's attention, by one of the two forms that avoid copies of keys."""

    def __init__(self, keys, folded):
        self.keys = keys
        self.form = dict(enable_gqa=not folded)
        self.query = query().view(1, KV_HEADS, GROUP, DIM) if folded else query()
        self.out = None

    def turn(self):
        seconds = []
        with torch.inference_mode():
            for k, v in self.keys:
                start = time.perf_counter()
                self.out = torch.nn.functional.scaled_dot_product_attention(
                    self.query, k, v, **self.form)
                seconds.append(time.perf_counter() - start)
        return statistics.mean(seconds[1:])


def require_same(ours, sdpa):
    """Both computed the same attention: the newest token, of zeros, weighs next to nothing."""
    off = (ours.out.view(-1) - sdpa.out.float().view(-1)).abs().max().item()
    if off > 2e-3:
        sys.exit(f"peers: our full attention is {off} off PyTorch's")


def ways_of(tokens, given):
    keys = [layer_keys(tokens, layer) for layer in range(LAYERS)]
    alone = dict(k=given.k, low_bit=0)
    ways = {"full": Ours(keys, given.threads, dense=True),
            "fasa": Ours(keys, given.threads),
            "rows_alone": Ours(keys, given.threads, **alone),
            "sdpa_gqa": Sdpa(keys, folded=False),
            "rows_alone_32": Ours(keys, given.threads, chunks=DIM // 4, **alone),
            "sdpa_folded": Sdpa(keys, folded=True)}
    if not given.no_llama:
        from peer_llama import LlamaCpp
        ways["llama_cpp"] = LlamaCpp(tokens, given.threads)
    return ways


def spread(values):
    ordered = sorted(values)
    low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.1, 0.9))
    return {"median": statistics.median(values), "p10": low, "p90": high}


def measure(tokens, given):
    ways = ways_of(tokens, given)
    found = {name: [] for name in ways}
    for turn in range(given.rounds + 2):
        for name, way in ways.items():
            time.sleep(PAUSE)
            seconds = way.turn()
            if turn >= 2:
                found[name].append(seconds * 1e3)
    require_same(ways["full"], ways["sdpa_folded"])
    forms = [name for name in found if name.startswith("sdpa")]
    best = min(forms, key=lambda name: statistics.median(found[name]))
    peers = {"full": "full", "pytorch": best,
             **({"llama_cpp": "llama_cpp"} if "llama_cpp" in found else {})}
    ratios = {ours: {name: spread([a / b for a, b in zip(found[peer], found[ours])])
                     for name, peer in peers.items()}
              for ours in ("fasa", "rows_alone", "rows_alone_32", "full")}
    return {"tokens": tokens, "ms": {name: spread(values) for name, values in found.items()},
            "faster_sdpa": best, "times_faster": ratios}


def versions(given):
    found = {"torch": torch.__version__, "fasa": fasa.__version__}
    if not given.no_llama:
        found["llama_cpp_python"] = importlib.import_module("llama_cpp").__version__
    return found


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


NAMES = {"full": "ours, full", "fasa": "FASA, the default: every token",
         "rows_alone": "the rows alone", "rows_alone_32": "chosen by 32 FCs",
         "sdpa_gqa": "PyTorch SDPA, enable_gqa",
         "sdpa_folded": "PyTorch SDPA, group folded",
         "llama_cpp": "llama.cpp, f16, flash attention"}


def table(report):
    lines = ["| tokens | " + " | ".join(NAMES[name] for name in report["results"][0]["ms"]) + " |",
             "|---" * (1 + len(report["results"][0]["ms"])) + "|"]
    for one in report["results"]:
        cells = [f"{v['median']:.2f} ({v['p10']:.2f} to {v['p90']:.2f})"
                 for v in one["ms"].values()]
        lines.append(f"| {one['tokens']} | " + " | ".join(cells) + " |")
    lines += ["", "| tokens | | over our full | over PyTorch's faster form | over llama.cpp |",
              "|---" * 5 + "|"]
    for one in report["results"]:
        for ours, over in one["times_faster"].items():
            cells = [f"{over[peer]['median']:.1f}x" if peer in over else "-"
                     for peer in ("full", "pytorch", "llama_cpp")]
            lines.append(f"| {one['tokens']} | {NAMES[ours]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[32768, 131072])
    parser.add_argument("--k", type=int, default=256,
                        help="rows of the ways that attend to rows alone")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-llama", action="store_true", help="without llama.cpp")
    parser.add_argument("--json", metavar="FILE", help="write the figures, too")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    report = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "processor": processor(), "threads": given.threads, "k": given.k,
              "rounds": given.rounds, "versions": versions(given), "results": []}
    for tokens in given.tokens:
        report["results"].append(measure(tokens, given))
    print(table(report))
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
