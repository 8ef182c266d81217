"""One generation through transformers, with a report in the form of `fasa generate --json`."""
from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch

from .transformers import Cache, enable


@dataclass
class Run:
    prompt: int
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    stopped: bool = False
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    sampling: dict = field(default_factory=dict)
    cache: Cache | None = None
    dtype: str = ""


class _Clock:
    """A streamer that records times; the first token's is the end of the prompt."""

    def __init__(self):
        self.times: list[float] = []

    def put(self, _):
        self.times.append(time.perf_counter())

    def end(self):
        pass


def generate(model, tokenizer, ids, config, arguments) -> Run:
    cache = Cache(model, config)
    enable(model, config, prefill_chunk_size=arguments.prefill_chunk)
    torch.manual_seed(arguments.seed)
    clock = _Clock()
    prompt = torch.tensor([ids])
    sampling = {"do_sample": False} if arguments.temperature == 0 else {
        "do_sample": True, "temperature": arguments.temperature, "top_k": arguments.top_k,
        "top_p": arguments.top_p}
    start = time.perf_counter()
    found = model.generate(prompt, attention_mask=torch.ones_like(prompt), past_key_values=cache,
                           max_new_tokens=arguments.max_tokens, streamer=clock, **sampling)
    ends = clock.times[1:] or [start]  # the first call passes the prompt
    knobs = {name: getattr(arguments, name) for name in ("temperature", "top_k", "top_p", "seed")}
    run = Run(len(ids), found[0, len(ids):].tolist(), sampling=knobs, cache=cache,
              dtype=str(model.dtype).removeprefix("torch."))
    stops = model.generation_config.eos_token_id
    stops = stops if isinstance(stops, list) else [stops]
    if run.tokens and run.tokens[-1] in stops:
        run.stopped = True
        run.tokens.pop()
    run.text = "" if tokenizer is None else tokenizer.decode(run.tokens)
    run.prefill_seconds = ends[0] - start
    run.decode_seconds = ends[-1] - ends[0]
    return run


def report(run: Run, model: str, config) -> dict:
    runtime = run.cache.runtime
    memory, fetch = runtime.memory(), runtime.metrics()
    steps = fetch["decode_steps"]
    per_step = 1 / steps if steps else 0.0
    names = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
    kinds = names.get(run.dtype, run.dtype)
    return {
        "tokens": run.tokens,
        "text": run.text,
        "stopped_on_eos": run.stopped,
        "end": "end_of_sequence" if run.stopped else "max_tokens",
        "sampling": run.sampling,
        "model": model,
        "device": runtime.device,
        "dtype": kinds,
        "row_dtype": config.row_dtype or kinds,
        "clock": "wall",
        "prefill": {"tokens": run.prompt, "seconds": run.prefill_seconds},
        "decode": {"tokens": steps, "seconds": run.decode_seconds,
                   "tpot_ms": run.decode_seconds * 1e3 * per_step},
        "memory": {"device_kv_bytes": memory["device_total"],
                   "device_slice_bytes": memory["device_slices"],
                   "device_row_bytes": memory["device_rows"],
                   "device_hot_row_bytes": memory["device_hot_rows"],
                   "device_extra_bytes": memory["device_extra"],
                   "device_scratch_bytes": memory["device_scratch"],
                   "host_kv_bytes": memory["host_rows"],
                   "cache_tokens": run.cache.get_seq_length()},
        "fetch": {"rows_per_step": fetch["misses"] * per_step,
                  "bytes_per_step": fetch["fetched_bytes"] * per_step,
                  "hit_rate": fetch["hit_rate"],
                  "prefetch": {"accuracy": fetch["prefetch_accuracy"],
                                  "coverage": fetch["prefetch_coverage"]},
                  "nan_scores": fetch["nan_scores"]},
        "map": config.map or None,
        "config": config.to_dict(),
    }
