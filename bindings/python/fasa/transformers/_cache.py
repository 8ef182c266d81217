"""A transformers cache whose full attention layers use the runtime."""
from __future__ import annotations

import copy

import torch
from transformers import cache_utils

from .. import Config, FcMap, UsageError
from ._geometry import (
    attention_modules,
    parameters_of,
    require_divisible,
    require_one_rotation,
    text_config,
)
from ._handle import Handle
from ._prompt import mark_prefill
from ._session import ModelPart, Session

# Up to about 5.12 `crop` takes the number of tokens to keep, later the number to remove.
_CROP_TAKES_LENGTH = "max_length" in parameters_of(cache_utils.DynamicLayer.crop)


class FasaLayer(cache_utils.CacheLayerMixin):
    """One layer's part of a session. The first layer also performs what concerns all layers."""

    is_sliding = False
    is_compileable = False
    is_croppable = True
    supports_early_init = False

    def __init__(self, session: Session, index: int):
        self.keys = self.values = None
        self.is_initialized = True
        self.session = session
        self.index = index  # index among the session's layers
        self.handles = (Handle.of(self),) * 2  # returned to the model as keys and values
        self.pending = None

    def __repr__(self):
        return f"FasaLayer({self.index})"

    def lazy_initialization(self, key_states, value_states=None) -> None:
        """Does nothing: the session opens its runtime with the first step."""

    def update(self, key_states, value_states, *args, **kwargs):
        self.pending = (key_states, value_states)
        return self.handles

    def refuse(self) -> None:
        raise UsageError(
            f"layer {self.index}: attention without new keys: models whose layers share keys are "
            "not supported; use a DynamicCache"
        )

    def get_seq_length(self, *_) -> int:
        return self.session.length  # a failed forward leaves it unchanged

    def get_mask_sizes(self, query_length) -> tuple[int, int]:
        if not isinstance(query_length, int):  # cache positions, in older releases
            query_length = query_length.shape[0]
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length

    def offload(self) -> None:
        """Does nothing: the runtime decides where rows are stored."""

    prefetch = offload

    def reset(self) -> None:
        if self.index == 0:
            self.session.reset()

    def reorder_cache(self, beam_idx) -> None:
        if self.index == 0 and self.session.rows:
            rows = beam_idx.nonzero().flatten() if beam_idx.dtype == torch.bool else beam_idx
            self.session.select(rows.tolist())

    batch_select_indices = reorder_cache

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.index == 0:
            rows = range(len(self.session.rows))
            self.session.select([row for row in rows for _ in range(repeats)])

    def crop(self, tokens: int) -> None:
        if self.index != 0:
            return
        length = self.session.length
        if tokens < 0:
            self.session.truncate(max(0, length + tokens))
        elif _CROP_TAKES_LENGTH:
            self.session.truncate(min(length, tokens))
        elif tokens > 0:
            raise ValueError(f"crop({tokens}): give a negative number: minus the number of tokens "
                             "to remove")

    def __deepcopy__(self, memo):
        return FasaLayer(copy.deepcopy(self.session, memo), self.index)


def _settings(config, options) -> Config:
    if isinstance(config, Config):
        settings = copy.copy(config)
        settings.update(**options)
        return settings
    return Config.load(config, **options)


class Cache(cache_utils.Cache):
    """Keys and values of `model` in tiers, for `generate(..., past_key_values=...)`.

    config: a fasa.Config, the path of a TOML file, or None for the defaults; keyword options such
    as fac_tokens=1024 override it. fc_map: a fasa.FcMap; default: the config's map. Layers without
    full attention keep transformers' own cache.
    """

    def __init__(self, model, config=None, fc_map: FcMap | None = None, **options):
        settings = _settings(config, options)
        own = text_config(model)
        require_divisible(model, own)
        require_one_rotation(own)
        layers = cache_utils.DynamicCache(config=own).layers
        indices = [i for i, layer in enumerate(layers) if type(layer) is cache_utils.DynamicLayer]
        if not indices:
            kinds = sorted({type(layer).__name__ for layer in layers})
            raise UsageError(
                f"{own.model_type}: none of its {len(layers)} layers is full attention "
                f"({', '.join(kinds)}); fasa handles full attention layers only (if the window is "
                "not needed, set sliding_window=None in the config)"
            )
        if fc_map is None and settings.map:
            fc_map = FcMap.load(settings.map)
        part = ModelPart(model, own, attention_modules(model, indices), indices)
        session = Session(part, settings, fc_map)
        for index, layer in enumerate(indices):
            layers[layer] = FasaLayer(session, index)
        self.session = session
        super().__init__(layers=layers)
        mark_prefill(model)

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        # The layers exist and are not offloaded: only this part of the base class's work remains.
        layer = self.layers[layer_idx]
        if type(layer) is not FasaLayer:
            return layer.update(key_states, value_states, *args, **kwargs)
        layer.pending = (key_states, value_states)
        return layer.handles

    @property
    def runtime(self):
        """The fasa.Runtime, or None before the first step."""
        return self.session.runtime

    def __deepcopy__(self, memo):
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        for name, value in self.__dict__.items():
            setattr(twin, name, copy.deepcopy(value, memo))
        return twin
