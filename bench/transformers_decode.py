#!/usr/bin/env python3
"""Decode inside transformers over a synthetic context: fasa-c beside PyTorch's attention with
transformers' DynamicCache and StaticCache.

A model of --layers layers with the geometry of Llama-3.1-8B and random weights, on this CPU in
bf16. The context's keys and values are random; each way of running takes --steps tokens over it.
For every length and cache: milliseconds of a layer's attention and of its cache update, of a whole
step, and the peak memory of the process (each runs in one of its own). One JSON line each. Threads
of PyTorch that wait for work give up their core at once (OMP_WAIT_POLICY=passive) with fasa, which
needs it for threads of its own, and spin with the others: what is better for each.

    PYTHONPATH=build/release/python \\
        build/venv/bin/python bench/transformers_decode.py --tokens 32768
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import torch
import transformers

KV_HEADS, QUERY_HEADS, DIM, HIDDEN = 8, 32, 128, 4096
CHUNK = 4096
WAYS = ["fasa", "dynamic", "static"]


def model_of(layers, tokens, attention):
    config = transformers.LlamaConfig(
        vocab_size=1024, hidden_size=HIDDEN, intermediate_size=14336, num_hidden_layers=layers,
        num_attention_heads=QUERY_HEADS, num_key_value_heads=KV_HEADS, head_dim=DIM,
        max_position_embeddings=tokens + 1024, attn_implementation=attention)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    return transformers.LlamaForCausalLM(config).eval()


class Timed:
    """Wraps a function; the seconds of its calls since the last take()."""

    def __init__(self, function):
        self.function, self.seconds = function, 0.0

    def __call__(self, *args, **kwargs):
        start = time.perf_counter()
        result = self.function(*args, **kwargs)
        self.seconds += time.perf_counter() - start
        return result

    def take(self):
        seconds, self.seconds = self.seconds, 0.0
        return seconds


def random_keys(tokens):
    return torch.randn(1, tokens, KV_HEADS, DIM, dtype=torch.bfloat16).transpose(1, 2)


def fill_fasa(cache, model, tokens):
    """Keys and values alone: a step that only appends is all that a synthetic context takes."""
    import fasa
    from fasa.transformers._tensors import flat, parts

    session, layers = cache.session, len(model.model.layers)
    module = model.model.layers[0].self_attn
    session.runtime = session._open(
        module, torch.empty(1, QUERY_HEADS, 1, DIM, dtype=torch.bfloat16),
        random_keys(1), random_keys(1), DIM**-0.5)
    session.rows = [session.runtime.sequence()]
    assert isinstance(session.runtime, fasa.Runtime)
    for first in range(0, tokens, CHUNK):
        count = min(CHUNK, tokens - first)
        session.runtime.begin_step([(session.rows[0], count, "prefill")])
        for layer in range(layers):
            k, v = flat(random_keys(count)), flat(random_keys(count))
            session.runtime._step_layer(layer, parts(k), parts(v), (), ())
        session.runtime.end_step()
    session.length = tokens


def fill(cache, tokens, layers):
    for layer in range(layers):
        cache.update(random_keys(tokens), random_keys(tokens), layer)


def measure(given, way):
    torch.manual_seed(1)
    if way == "fasa":
        import fasa.transformers
    model = model_of(given.layers, given.tokens, "fasa" if way == "fasa" else "sdpa")
    interface = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS
    name = model.config._attn_implementation
    if way == "fasa":
        cache = fasa.transformers.Cache(model, preset="fasa-c", fac_tokens=given.fac_tokens,
                                        low_bit_tokens=0)
        fill_fasa(cache, model, given.tokens)
    elif way == "dynamic":
        cache = transformers.DynamicCache(config=model.config)
        fill(cache, given.tokens, given.layers)
    else:
        cache = transformers.StaticCache(config=model.config, max_cache_len=given.tokens + 256)
        fill(cache, given.tokens, given.layers)
    attention = Timed(interface[name])
    interface.register(name, attention)
    update = cache.update = Timed(cache.update)
    parts = {"attention_ms": [], "update_ms": [], "step_ms": []}
    with torch.no_grad():
        for step in range(given.steps + 2):
            ids = torch.tensor([[step % 1000]])
            position = torch.tensor([[given.tokens + step]])
            start = time.perf_counter()
            model(ids, past_key_values=cache, position_ids=position)
            seconds = time.perf_counter() - start
            times = (attention.take() / given.layers, update.take() / given.layers, seconds)
            for part, value in zip(parts.values(), times):
                if step >= 2:
                    part.append(value * 1e3)
    medians = {name: round(statistics.median(values), 3) for name, values in parts.items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    return {"tokens": given.tokens, "way": way, **medians, "peak_GiB": round(peak, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--fac-tokens", type=int, default=256)
    parser.add_argument("--way", choices=WAYS, help="this one alone, in this process")
    given = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    if given.way:
        print(json.dumps(measure(given, given.way)), flush=True)
        return
    for way in WAYS:
        environment = {**os.environ, **({"OMP_WAIT_POLICY": "passive"} if way == "fasa" else {})}
        subprocess.run([sys.executable, *sys.argv, "--way", way], check=True, env=environment)


if __name__ == "__main__":
    main()
