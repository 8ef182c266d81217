#!/usr/bin/env python3
"""The loss of selections and of llama.cpp's quantised KV caches, in the same units and one run.

Both read the same windows of the same texts with the same GGUF file: the beginning of a window is
prefilled, then each of the last tokens is scored against the reference of the same program, full
attention over unquantised rows (fasa) or an f16 cache (llama.cpp). KLD is KL(reference || other) of
the next token's distribution in nats, same top the share of tokens with the same most likely next
token; intervals are 95 % over windows, by the normal distribution.

fasa's prefill is exact; the scored tokens are decoded with the selection. llama.cpp reads a
quantised cache during the prefill too, in batches of 512.

    tools/env python && tools/env peers
    PYTHONPATH=build/peers build/venv/bin/python bench/kv_quality.py --model MODEL.gguf \\
        --text TEXT... --context 8192 --json kv-quality.json
"""
import argparse
import ctypes
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

import llama_cpp
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
KV_TYPES = {"f16": 1, "q8_0": 8, "q5_1": 7, "q4_0": 2}  # ggml's numbers
BITS = {"f16": 16, "q8_0": 8.5, "q5_1": 6, "q4_0": 4.5}  # a value, with its block's scale
BATCH = 512
FLASH_ATTENTION = 1  # quantised values need it


@llama_cpp.llama_log_callback
def _quiet(*_):
    """Silences llama.cpp's log."""


def require(ok, what):
    if not ok:
        sys.exit(f"kv_quality: llama.cpp: {what} failed")


class Llama:
    def __init__(self, path, threads):
        llama_cpp.llama_log_set(_quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.threads = threads
        self.model = llama_cpp.llama_model_load_from_file(
            bytes(path), llama_cpp.llama_model_default_params())
        require(self.model, "loading the model")
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.width = llama_cpp.llama_vocab_n_tokens(self.vocabulary)

    def tokenize(self, text):
        ids = (ctypes.c_int32 * (len(text) + 8))()
        count = llama_cpp.llama_tokenize(self.vocabulary, text, len(text), ids, len(ids), False,
                                         False)
        require(count > 0, "tokenizing")
        return list(ids[:count])

    def log_probabilities(self, ids, scored, kv):
        """[scored, vocabulary] after each of the last `scored` ids."""
        settings = llama_cpp.llama_context_default_params()
        settings.type_k = settings.type_v = KV_TYPES[kv]
        settings.n_ctx = -(-len(ids) // 256) * 256
        settings.n_batch = settings.n_ubatch = BATCH
        settings.n_threads = settings.n_threads_batch = self.threads
        settings.flash_attn_type = FLASH_ATTENTION
        context = llama_cpp.llama_init_from_model(self.model, settings)
        require(context, f"making a context with {kv}")
        batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
        prefilled = len(ids) - scored
        found = np.empty((scored, self.width), np.float32)
        at = 0
        while at < len(ids):
            # Scored tokens one by one: a batch of them would be a prefill.
            count = min(BATCH, prefilled - at) if at < prefilled else 1
            batch.n_tokens = count
            for i in range(count):
                batch.token[i], batch.pos[i] = ids[at + i], at + i
                batch.n_seq_id[i] = 1
                batch.seq_id[i][0] = 0
                batch.logits[i] = at >= prefilled
            require(llama_cpp.llama_decode(context, batch) == 0, "a step")
            if at >= prefilled:
                logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, 0),
                                               (self.width,)).astype(np.float64)
                logits -= logits.max()
                found[at - prefilled] = logits - math.log(np.exp(logits).sum())
            at += count
        llama_cpp.llama_batch_free(batch)
        llama_cpp.llama_free(context)
        return found


def mean_of(values, low=0.0, high=math.inf):
    mean = statistics.mean(values)
    half = (1.959964 * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0)
    return {"mean": mean, "interval": [max(low, mean - half), min(high, mean + half)]}


def windows(texts, given):
    """As in `fasa eval ppl`: the first window of each text, then the second of each."""
    most = max((len(ids) - given.context - 1) // given.stride for ids in texts)
    found = [ids[first:first + given.context + 1]
             for first in range(0, (most + 1) * given.stride, given.stride) for ids in texts
             if first + given.context + 1 <= len(ids)]
    if len(found) < given.examples:
        sys.exit(f"kv_quality: --examples {given.examples}: the texts have {len(found)} windows")
    return found[:given.examples]


def of_llama(given):
    llama = Llama(given.model, given.threads)
    found = {kv: {"kl": [], "same": [], "loss": []} for kv in KV_TYPES if kv != "f16"}
    for window in windows([llama.tokenize(path.read_bytes()) for path in given.text], given):
        ids, following = window[:-1], np.array(window[-given.stride:])
        rows = np.arange(given.stride)
        reference = llama.log_probabilities(ids, given.stride, "f16").astype(np.float64)
        for kv, lists in found.items():
            other = llama.log_probabilities(ids, given.stride, kv).astype(np.float64)
            lists["kl"].append(float((np.exp(reference) * (reference - other)).sum(1).mean()))
            lists["same"].append(float((reference.argmax(1) == other.argmax(1)).mean()))
            lists["loss"].append(float((reference - other)[rows, following].mean()))
            print(f"{kv}: KLD {lists['kl'][-1]:.5f}", file=sys.stderr)
    return [{"method": f"llama.cpp, {kv} cache", "bits": BITS[kv], "kl": mean_of(lists["kl"]),
             "same_best": mean_of(lists["same"], high=1.0),
             "perplexity_change": math.expm1(statistics.mean(lists["loss"]))}
            for kv, lists in found.items()]


def of_fasa(given, selections, budgets, more=()):
    with tempfile.TemporaryDirectory() as results:
        command = [given.fasa, "eval", "ppl", "--model", given.model, "--text", *given.text,
                   "--context", given.context, "--stride", given.stride, "--examples",
                   given.examples, "--one-pass", "--selections", f"full,{selections}",
                   *(["--budgets", *budgets] if budgets else []), "--results", results, "--json",
                   "--threads", given.threads, *more]
        done = subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE)
    rows = []
    for method in json.loads(done.stdout)["methods"]:
        against = method["tasks"][0].get("against_full")
        if against:
            rows.append({"method": method["method"], "kl": against["kl"],
                         "same_best": against["same_best"],
                         "perplexity_change": against["perplexity_change"]["mean"]})
    return rows


def table(report):
    lines = ["| | KLD, nats (95 %) | same top (95 %) | perplexity |", "|---|---|---|---|"]
    for row in report["rows"]:
        kl, same = row["kl"], row["same_best"]
        lines.append(f"| {row['method']} | {kl['mean']:.5f} ({kl['interval'][0]:.5f} to "
                     f"{kl['interval'][1]:.5f}) | {100 * same['mean']:.1f} % "
                     f"({100 * same['interval'][0]:.1f} to {100 * same['interval'][1]:.1f}) | "
                     f"{100 * row['perplexity_change']:+.2f} % |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="a GGUF file")
    parser.add_argument("--text", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--stride", type=int, default=256)
    parser.add_argument("--examples", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--selections", default="quest,snapkv,h2o,streaming,sparq",
                        help="compared at --budgets tokens")
    parser.add_argument("--budgets", type=int, nargs="*", default=[1024])
    parser.add_argument("--fasa", type=pathlib.Path, default=ROOT / "build/release/fasa")
    parser.add_argument("--json", type=pathlib.Path)
    given = parser.parse_args()
    given.fasa = given.fasa.resolve()  # a name without a folder would be looked up in PATH
    report = {"model": given.model.name, "texts": [path.name for path in given.text],
              "context": given.context, "stride": given.stride, "examples": given.examples,
              "llama_cpp_python": llama_cpp.__version__, "rows": []}
    parts = [lambda: of_fasa(given, "fasa", [])]
    if given.budgets:
        parts.append(lambda: of_fasa(given, f"fasa,{given.selections}", given.budgets))
    for part in [*parts, lambda: of_llama(given)]:  # a run that is cut off leaves those before
        report["rows"] += part()
        if given.json:
            given.json.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report))


if __name__ == "__main__":
    main()
