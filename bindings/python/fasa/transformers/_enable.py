"""fasa for every `generate` of a model."""
from __future__ import annotations

import functools
import inspect
import types
import weakref

from .. import UsageError
from ._cache import Cache
from ._prompt import ORIGINALS, mark_prefill, replace

_BATCHING = ("generate_batch", "init_continuous_batching", "continuous_batching_context_manager")
_CHUNK = 512


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
    owner = weakref.ref(model)
    Cache(model, config, fc_map, **options)  # reports errors now
    disable(model)
    before = (model.config._attn_implementation, model.generation_config.prefill_chunk_size)
    model.set_attn_implementation("fasa")
    model.__dict__.setdefault(ORIGINALS, {})["before"] = before
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

    replace(model, "_prepare_cache_for_generation", make)
    mark_prefill(model)
    for name in _BATCHING:
        replace(model, name, lambda _, name=name: types.MethodType(_refusal(name), model))
    return model


def disable(model):
    """Undoes enable(). Returns the model."""
    originals = model.__dict__.pop(ORIGINALS, {})
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
