"""fasa for every `generate` of a model."""
from __future__ import annotations

import contextlib
import functools
import inspect
import types
import weakref

from .. import UsageError

# Ids of models whose `_prefill` is running: its last chunk may be a single token and is still no
# decode step.
_prefilling: set[int] = set()
_MARK = "_fasa_originals"
_BATCHING = ("generate_batch", "init_continuous_batching", "continuous_batching_context_manager")
_CHUNK = 512


def prefilling(owner) -> bool:
    """Whether `_prefill` is running on the model that the weak reference `owner` refers to."""
    return bool(_prefilling) and id(owner()) in _prefilling


@contextlib.contextmanager
def reading_prompt(model):
    """Context manager: inside, a single token after cached ones ends a prompt; it is no decode
    step."""
    _prefilling.add(id(model))
    try:
        yield
    finally:
        _prefilling.discard(id(model))


def _replace(model, name, make) -> None:
    """Replaces model.name by make(original), on this instance only and only once."""
    originals = model.__dict__.setdefault(_MARK, {})
    original = getattr(model, name, None)
    if name in originals or original is None:
        return
    originals[name] = model.__dict__.get(name)
    setattr(model, name, make(original))


def _marked(original, owner):
    @functools.wraps(original)
    def prefill(*args, **kwargs):
        with reading_prompt(owner()), _unchunked(original, args, kwargs):
            return original(*args, **kwargs)

    return prefill


class _unchunked:
    """Disables prefill chunks without a cache and with cached tokens: early releases cut the prompt
    into chunks without removing the cached tokens."""

    def __init__(self, original, args, kwargs):
        given = inspect.signature(original).bind(*args, **kwargs).arguments
        self._config = given.get("generation_config")
        cache = given.get("model_kwargs", {}).get("past_key_values")
        self._applies = self._config is not None and (cache is None or cache.get_seq_length() > 0)

    def __enter__(self):
        if self._applies:
            self._chunk = self._config.prefill_chunk_size
            self._config.prefill_chunk_size = None

    def __exit__(self, *_):
        if self._applies:
            self._config.prefill_chunk_size = self._chunk


def mark_prefill(model) -> None:
    """Makes `prefilling(owner)` report whether the model's prompt is being read."""
    owner = weakref.ref(model)
    _replace(model, "_prefill", lambda original: _marked(original, owner))


def _refusal(name):
    def refuse(self, *_, **__):
        raise UsageError(
            f"{name} uses transformers' paged cache, which fasa does not support; call generate "
            "with a batch, or fasa.transformers.disable(model)"
        )

    return refuse


def enable(model, config=None, fc_map=None, *, prefill_chunk_size: int | None = _CHUNK, **options):
    """Makes `model.generate` run on fasa, with a new cache if the call passes none.

    config, fc_map, options: as fasa.transformers.Cache takes them. prefill_chunk_size: prompt
    tokens per step, None for all at once. Returns the model.
    """
    from ._cache import Cache

    owner = weakref.ref(model)
    Cache(model, config, fc_map, **options)  # reports errors now
    disable(model)
    before = (model.config._attn_implementation, model.generation_config.prefill_chunk_size)
    model.set_attn_implementation("fasa")
    model.__dict__.setdefault(_MARK, {})["before"] = before
    if prefill_chunk_size is not None:
        model.generation_config.prefill_chunk_size = prefill_chunk_size

    def make(original):
        signature = inspect.signature(original)

        @functools.wraps(original)
        def prepare(*args, **kwargs):
            given = signature.bind(*args, **kwargs).arguments
            generation, inputs = given["generation_config"], given["model_kwargs"]
            plain = generation.cache_implementation in (None, "dynamic")
            if (inputs.get("past_key_values") is None and plain
                    and generation.use_cache is not False):
                inputs["past_key_values"] = Cache(owner(), config, fc_map, **options)
                return None
            return original(*args, **kwargs)

        return prepare

    _replace(model, "_prepare_cache_for_generation", make)
    mark_prefill(model)
    for name in _BATCHING:
        _replace(model, name, lambda _, name=name: types.MethodType(_refusal(name), model))
    return model


def disable(model):
    """Undoes enable(). Returns the model."""
    originals = model.__dict__.pop(_MARK, {})
    before = originals.pop("before", None)
    for name, original in originals.items():
        if original is None:
            model.__dict__.pop(name, None)
        else:
            setattr(model, name, original)
    if before is not None:
        model.set_attn_implementation(before[0])
        model.generation_config.prefill_chunk_size = before[1]
    return model
