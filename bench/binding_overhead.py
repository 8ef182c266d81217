#!/usr/bin/env python3
"""What Python adds to a layer's attention in a decode step inside transformers.

Times, per layer and step, medians: the whole way through a fasa.transformers cache (update, handle,
attention function), the bare call of the runtime with tensors taken apart beforehand, and the
smallest call into the compiled part (which the bare call contains once). The binding's cost is the
first minus the second plus the third. The variants take turns of a few steps each, over the same
context; the first step of a turn only warms up. fasa runs in one thread and the clock is that
thread's processor time, so that a busy machine counts less.

    PYTHONPATH=build/release/python build/venv/bin/python bench/binding_overhead.py
"""
import argparse
import json
import statistics
import time

import torch
import transformers

import fasa
import fasa.transformers
from fasa.transformers._tensors import flat, parts

KV_HEADS, QUERY_HEADS, DIM = 8, 32, 128


def model_of(layers):
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=QUERY_HEADS * DIM, intermediate_size=32,
        num_hidden_layers=layers, num_attention_heads=QUERY_HEADS, num_key_value_heads=KV_HEADS,
        head_dim=DIM)
    with torch.device("meta"):  # its weights take no part
        model = transformers.LlamaForCausalLM(config)
    return model.eval()


def tensors(tokens, dtype):
    return [torch.randn(1, tokens, heads, DIM, dtype=dtype).transpose(1, 2)
            for heads in (KV_HEADS, KV_HEADS, QUERY_HEADS)]


def through_cache(cache, modules, attention, k, v, q):
    for index, module in enumerate(modules):
        handles = cache.update(k, v, index)
        attention(module, q, *handles, None, scaling=DIM**-0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--turn", type=int, default=5, help="steps of a turn that count")
    given = parser.parse_args()
    model = model_of(given.layers)
    modules = [layer.self_attn for layer in model.model.layers]
    cache = fasa.transformers.Cache(model, preset="fasa-c", threads=1)
    attention = fasa.transformers.fasa_attention
    with torch.no_grad():
        through_cache(cache, modules, attention, *tensors(given.tokens, torch.bfloat16))
        k, v, q = tensors(1, torch.bfloat16)
        out = torch.empty(1, QUERY_HEADS, DIM, dtype=torch.bfloat16)
        bare = [parts(flat(t)) for t in (k, v, q)] + [parts(out)]
        runtime, rows = cache.runtime, cache.session.rows

        def directly():
            runtime.begin_step([(rows[0], 1, "decode")])
            for layer in range(given.layers):
                runtime._step_layer(layer, *bare)
            runtime.end_step()

        def least():
            for _ in range(given.layers):
                runtime.in_step

        ways = {"through_us": lambda: through_cache(cache, modules, attention, k, v, q),
                "direct_us": directly, "call_us": least}
        found = {name: [] for name in ways}
        for _ in range(given.steps // given.turn):
            for name, way in ways.items():
                way()
                for _ in range(given.turn):
                    start = time.thread_time()
                    way()
                    found[name].append((time.thread_time() - start) / given.layers * 1e6)
    found["added_us"] = [a - b + c for a, b, c in zip(*found.values())]
    median = {name: round(statistics.median(values), 2) for name, values in found.items()}
    print(json.dumps({"tokens": given.tokens, "layers": given.layers, "steps": given.steps,
                      **median}))


if __name__ == "__main__":
    main()
