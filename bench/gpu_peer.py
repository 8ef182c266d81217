#!/usr/bin/env python3
"""Dense decode attention by others, beside gpu_bench: one layer of Llama-3.1-8B (8 KV x 4 query
heads, head_dim 128, bf16), batch 1. PyTorch's scaled_dot_product_attention in each form that takes
grouped heads, and FlashInfer where it is installed. Keys and values are larger than any L2.

  python3 bench/gpu_peer.py [--tokens 16384 131072] [--json FILE]

Exit: 0 done, 5 no PyTorch with CUDA.
"""

import argparse
import json
import statistics
import sys

KV_HEADS, QUERY_HEADS, HEAD_DIM = 8, 32, 128
LAYERS_BYTES = 1 << 29  # of keys and values in turn, so that none stays in the L2


def median_us(torch, call, layers, repeats=20):
    """Microseconds of one call, by events around a turn over all layers."""
    times = []
    for turn in range(repeats + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for layer in range(layers):
            call(layer)
        end.record()
        end.synchronize()
        if turn >= 3:
            times.append(begin.elapsed_time(end) * 1e3 / layers)
    return {"us": statistics.median(times), "min_us": min(times)}


def tensors(torch, tokens):
    layers = max(1, LAYERS_BYTES // (tokens * KV_HEADS * HEAD_DIM * 4))
    shape = (layers, 1, KV_HEADS, tokens, HEAD_DIM)
    keys, values = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    query = torch.randn(1, QUERY_HEADS, 1, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
    return layers, query, keys, values


def sdpa_forms(torch, tokens):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    layers, query, keys, values = tensors(torch, tokens)
    attention = torch.nn.functional.scaled_dot_product_attention
    # Four query heads on one KV head as four queries on it: the same sums, and each key read once.
    folded = query.view(1, KV_HEADS, QUERY_HEADS // KV_HEADS, HEAD_DIM)
    forms = {
        "grouped": lambda layer: attention(query, keys[layer], values[layer], enable_gqa=True),
        "folded": lambda layer: attention(folded, keys[layer], values[layer]),
    }
    results = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION,
                    SDPBackend.CUDNN_ATTENTION):
        for form, call in forms.items():
            name = f"sdpa {backend.name.lower()} {form}"
            try:
                with sdpa_kernel(backend):
                    results[name] = median_us(torch, call, layers)
            except RuntimeError as error:
                results[name] = {"skipped": str(error).splitlines()[0][:200]}
    return results


def flashinfer_form(torch, tokens):
    try:
        import flashinfer
    except ImportError:
        return {"flashinfer": {"skipped": "not installed"}}
    layers, query, keys, values = tensors(torch, tokens)
    one = query[0, :, 0]
    results = {}
    for name, tensor_cores in (("flashinfer", False), ("flashinfer tensor cores", True)):
        def call(layer, tensor_cores=tensor_cores):
            flashinfer.single_decode_with_kv_cache(one, keys[layer, 0], values[layer, 0],
                                                   kv_layout="HND", use_tensor_cores=tensor_cores)
        try:
            results[name] = median_us(torch, call, layers)
        except Exception as error:  # it compiles kernels when called: anything may be missing
            results[name] = {"skipped": f"{type(error).__name__}: {error}"[:200]}
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[16384, 131072])
    parser.add_argument("--json")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("gpu_peer: there is no PyTorch", file=sys.stderr)
        return 5
    if not torch.cuda.is_available():
        print("gpu_peer: PyTorch finds no CUDA device", file=sys.stderr)
        return 5
    report = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "tokens": {}}
    for tokens in options.tokens:
        results = {**sdpa_forms(torch, tokens), **flashinfer_form(torch, tokens)}
        report["tokens"][str(tokens)] = results
        for name, result in results.items():
            print(f"{tokens:8} {name:40} {result.get('us', result.get('skipped'))}")
        torch.cuda.empty_cache()
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
