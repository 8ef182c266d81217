"""Makes the FC map of any transformers model."""
from __future__ import annotations

import torch

from .. import Config, FcMap, UsageError, rank_chunks
from ._attention import observing
from ._geometry import attention_modules, fingerprint, geometry_of, text_config


class _Capture:
    """Collects the rotated keys of all tokens and the queries at some positions, by layer."""

    def __init__(self, modules, positions):
        self._layers = {id(module): layer for layer, module in enumerate(modules)}
        self._positions = positions
        self.keys: dict[int, torch.Tensor] = {}  # layer -> [kv_heads, tokens, dim]
        self.queries: dict[int, torch.Tensor] = {}  # layer -> [query_heads, positions, dim]
        self.scales: dict[int, float] = {}
        self.caps: dict[int, float] = {}  # of scaled scores, 0 = none

    def __call__(self, module, query, key, scaling, softcap):
        layer = self._layers.get(id(module))
        if layer is None:
            return
        self.keys[layer] = key[0].float().cpu()
        self.queries[layer] = query[0, :, self._positions].float().cpu()
        self.scales[layer] = scaling if scaling is not None else query.shape[-1] ** -0.5
        self.caps[layer] = softcap or 0.0


def calibrate(model, ids, *, config: Config | None = None, objective: str = "distant_attention",
              tokens: int | None = None, window: int | None = None, queries: int = 96,
              seed: int = 1, probes: bool = True, progress=None) -> FcMap:
    """Runs token ids through the model once and ranks the frequency chunks of every KV head.

    ids: a list of token ids. progress(phase, done, total), phases "running" and "ranking". All
    layers must be full attention.
    """
    from .._studies import calibration_data, default_calibration_window

    settings = config or Config()
    own = text_config(model)
    most = min(tokens or 4096, own.max_position_embeddings)
    data = calibration_data([int(i) for i in ids], tokens=most, queries=queries, probes=probes,
                            seed=seed)
    modules = attention_modules(model, list(range(own.num_hidden_layers)))
    capture = _Capture(modules, data.positions)
    _run(model, data.ids, capture)
    if progress:
        progress("running", len(data.ids), len(data.ids))
    missing = [layer for layer in range(len(modules)) if layer not in capture.keys]
    if missing:
        raise UsageError(
            f"layers {missing} did not call attention, so they cannot be calibrated")
    made = FcMap()
    made.objective, made.data_hash, made.probes = objective, data.hash, data.probes
    made.sinks, made.recent = settings.sinks, settings.recent
    made.tokens, made.queries = len(data.ids), len(data.positions)
    made.window = window or default_calibration_window(made.tokens, made.sinks, made.recent)
    made.fingerprint = fingerprint(model)
    made.heads = _rank(modules[0], own, capture, data.positions, made, progress)
    return made


def _run(model, ids, capture) -> None:
    before = model.config._attn_implementation
    model.set_attn_implementation("fasa")
    try:
        with torch.no_grad(), observing(capture):
            model.get_decoder()(input_ids=torch.tensor([ids], device=model.device), use_cache=False)
    finally:
        model.set_attn_implementation(before)


def _rank(module, config, capture, positions, made, progress):
    layers, heads = len(capture.keys), capture.keys[0].shape[0]
    query, key = capture.queries[0][None], capture.keys[0][None]
    chunks = geometry_of(module, config, layers, query, key, key, None).chunks
    ranked = []
    for layer in range(layers):
        grouped = capture.queries[layer].unflatten(0, (heads, -1)).transpose(1, 2)
        ranked.append([])
        for head in range(heads):
            ranked[-1].append(rank_chunks(
                capture.keys[layer][head].contiguous().numpy(),
                grouped[head].contiguous().numpy(),
                positions, chunks, scale=capture.scales[layer], objective=made.objective,
                window=made.window, sinks=made.sinks, recent=made.recent,
                score_cap=capture.caps[layer]))
            if progress:
                progress("ranking", layer * heads + head + 1, layers * heads)
    return ranked
