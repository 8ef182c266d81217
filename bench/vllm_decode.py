#!/usr/bin/env python3
"""Decode attention inside vLLM: its own backend for processors beside fasa, in one run.

A model of two layers of 8 KV x 4 query heads, head_dim 128 (an 8 B model's attention), random
weights, bf16, one sequence. Each way is an engine in a process of its own; they take turns, round
by round. A decode step's attention is what vLLM calls of the backend in its layers: storing the
token's key and value, and attending. Prompts are stored and their attention is left out, for it is
not what is measured and its outputs count for nothing in random weights. Medians over rounds of a
round's median step, and the best step of all, which other work on the machine disturbs least.

    tools/env vllm
    PYTHONPATH=build/release/python build/vllm-env/bin/python bench/vllm_decode.py --json vllm.json
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

WAYS = ("vLLM", "fasa")
LAYERS = 2


def write_model(folder, positions):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
              "intermediate_size": 512, "num_hidden_layers": LAYERS, "num_attention_heads": 32,
              "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 512, "rms_norm_eps": 1e-5,
              "max_position_embeddings": positions, "rope_theta": 500000.0, "hidden_act": "silu",
              "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1,
              "eos_token_id": 2}
    pathlib.Path(folder, "config.json").write_text(json.dumps(config))


def measured(impl_class, prompt_rows, times):
    """The class's calls in decode steps are timed; of prompts only storing is left."""
    attend, store = impl_class.forward, impl_class.do_kv_cache_update

    def timed(method, self, *args, **kwargs):
        start = time.perf_counter()
        found = method(self, *args, **kwargs)
        times[-1] += time.perf_counter() - start
        return found

    def forward(self, layer, query, key, value, kv_cache, metadata, output, *args, **kwargs):
        if metadata is None or prompt_rows(metadata):
            return output.zero_()
        return timed(attend, self, layer, query, key, value, kv_cache, metadata, output,
                     *args, **kwargs)

    impl_class.forward = forward
    impl_class.do_kv_cache_update = (
        lambda self, *args, **kwargs: timed(store, self, *args, **kwargs))


def open_engine(way, folder, given):
    from vllm import LLM

    options = {"model": folder, "load_format": "dummy", "skip_tokenizer_init": True,
               "dtype": "bfloat16",
               "max_model_len": given.context + 512, "enforce_eager": True, "max_num_seqs": 1,
               "max_num_batched_tokens": 2048, "kv_cache_memory_bytes": given.kv_cache << 20,
               "enable_prefix_caching": False}
    if way == "fasa":
        options |= {"worker_cls": "fasa.vllm.CpuWorker", "additional_config": {
            "fasa": {"fac_tokens": given.fac_tokens, "low_bit_tokens": given.low_bit_tokens,
                     "threads": os.cpu_count()}}}
    return LLM(**options)


def pools(way, llm):
    """Bytes of the KV cache that one token takes, all layers together."""
    if way == "fasa":
        from fasa.vllm._store import current_store

        paged = current_store().paged
        memory = paged.memory()
        tokens = paged.num_pages * paged.page_size
        return {"rows": memory["device_rows"] / tokens, "slices": memory["device_slices"] / tokens,
                "vllm": 2 * LAYERS}
    group = llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_config.kv_cache_groups[0]
    return {"vllm": LAYERS * group.kv_cache_spec.page_size_bytes / group.kv_cache_spec.block_size}


def serve(way, folder, given):
    """One engine, told to measure a round by a line of its input."""
    import psutil
    from vllm import SamplingParams

    times = [0.0]
    if way == "fasa":
        from fasa.vllm._impl import FasaImpl as Impl

        def prompt_rows(metadata):
            return metadata.prefill is not None
    else:
        from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl as Impl

        def prompt_rows(metadata):
            return metadata.max_query_len > 1
    measured(Impl, prompt_rows, times)
    llm = open_engine(way, folder, given)
    core = llm.llm_engine
    core.add_request("0", {"prompt_token_ids": [3 + i % 500 for i in range(given.context)]},
                     SamplingParams(temperature=0, max_tokens=510, ignore_eos=True,
                                    detokenize=False))
    for _ in range(-(-given.context // 2048) + 4):
        core.step()
    print(json.dumps({"bytes": pools(way, llm), "rss": psutil.Process().memory_info().rss}),
          flush=True)
    for line in sys.stdin:
        attention, steps = [], []
        for _ in range(int(line)):
            times.append(0.0)
            start = time.perf_counter()
            core.step()
            steps.append(time.perf_counter() - start)
            attention.append(times[-1])
        print(json.dumps({"attention": statistics.median(attention), "best": min(attention),
                          "step": statistics.median(steps)}), flush=True)


def start(way, folder, given, plugin):
    environment = {**os.environ, "PYTHONPATH": f"{plugin}:{os.environ['PYTHONPATH']}",
                   "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_CI_ENV": "1",
                   "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1",
                   "VLLM_LOGGING_LEVEL": "ERROR", "CUDA_VISIBLE_DEVICES": ""}
    log = open(pathlib.Path(folder, f"{way}.log"), "w", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", way, "--folder", folder,
         "--context", str(given.context), "--fac-tokens", str(given.fac_tokens),
         "--low-bit-tokens", str(given.low_bit_tokens), "--kv-cache", str(given.kv_cache)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    return process, read(process, folder, way)


def read(process, folder, way):
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
    sys.exit(f"{way}'s engine ended:\n" + pathlib.Path(folder, f"{way}.log").read_text()[-3000:])


def write_plugin(folder):
    """fasa's entry point, for a package that lies in a build tree."""
    info = pathlib.Path(folder, "plugin/fasa-0.1.0.dist-info")
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fasa\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\nfasa = fasa.vllm:register\n")
    return str(info.parent)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def compare(given):
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, given.context + 512)
        plugin = write_plugin(folder)
        engines, sizes, rounds = {}, {}, {way: [] for way in WAYS}
        try:
            for way in WAYS:
                engines[way], sizes[way] = start(way, folder, given, plugin)
            for _ in range(given.rounds):
                for way in WAYS:
                    engines[way].stdin.write(f"{given.steps}\n")
                    engines[way].stdin.flush()
                    rounds[way].append(read(engines[way], folder, way))
        finally:
            for process in engines.values():
                process.stdin.close()
                process.wait(60)
    ratios = [one["attention"] / other["attention"]
              for one, other in zip(rounds["vLLM"], rounds["fasa"])]
    best = {way: min(r["best"] for r in rounds[way]) for way in WAYS}
    return {"context": given.context, "fac_tokens": given.fac_tokens,
            "low_bit_tokens": given.low_bit_tokens,
            "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
            "processor": processor(),
            "cores": os.cpu_count(), "rounds": given.rounds, "steps": given.steps, "ratio": {
                "median": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)},
            "ratio_of_best": best["vLLM"] / best["fasa"],
            "ways": {way: {"attention_ms":
                               1e3 * statistics.median(r["attention"] for r in rounds[way]),
                           "best_ms": 1e3 * best[way],
                           "step_ms": 1e3 * statistics.median(r["step"] for r in rounds[way]),
                           **sizes[way]} for way in WAYS}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--context", type=int, default=32768, metavar="N")
    parser.add_argument("--fac-tokens", type=int, default=320, metavar="K")
    parser.add_argument("--low-bit-tokens", type=lambda text: text if text == "auto" else int(text),
                        default="auto", metavar="N")
    parser.add_argument("--kv-cache", type=int, default=1024, metavar="MIB",
                        help="memory per engine")
    parser.add_argument("--rounds", type=int, default=7, metavar="N")
    parser.add_argument("--steps", type=int, default=30, metavar="N", help="steps per round")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--serve", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve(given.serve, given.folder, given)
    found = compare(given)
    for way, one in found["ways"].items():
        kept = ", ".join(f"{name} {value:.0f} B" for name, value in one["bytes"].items())
        print(f"{way}: attention of {LAYERS} layers {one['attention_ms']:.2f} ms, at best "
              f"{one['best_ms']:.2f}, whole step {one['step_ms']:.2f} ms; "
              f"a token's KV: {kept}; process {one['rss'] / 2**20:.0f} MiB")
    ratio = found["ratio"]
    print(f"ratio {ratio['median']:.1f} ({ratio['lowest']:.1f} to {ratio['highest']:.1f}), "
          f"of the best steps {found['ratio_of_best']:.1f}, at {found['context']} tokens, "
          f"{found['fac_tokens']} rows and {found['low_bit_tokens']} low-bit tokens; "
          f"{found['processor']}, {found['cores']} cores")
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
