"""Whether a model's prompt is being read, and what is replaced on a model to know it."""
from __future__ import annotations

import contextlib
import functools
import inspect
import weakref

# Ids of models whose `_prefill` is running: its last chunk may be a single token and is still no
# decode step.
_prefilling: set[int] = set()
ORIGINALS = "_fasa_originals"  # the model's attribute that holds what replace() replaced


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


def replace(model, name, make) -> None:
    """Replaces model.name by make(original), on this instance only and only once."""
    originals = model.__dict__.setdefault(ORIGINALS, {})
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
    replace(model, "_prefill", lambda original: _marked(original, owner))
