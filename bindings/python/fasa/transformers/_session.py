"""The sequences of one cache, and their steps through the layers."""
from __future__ import annotations

import copy
import weakref
from dataclasses import dataclass

import numpy as np
import torch

from .. import Config, FcMap, Runtime, UsageError
from .._core import _StepLayout
from ._attention import exact
from ._geometry import fingerprint, geometry_of, shard_of
from ._prompt import prefilling
from ._tensors import DTYPES, device_of, flat, lie_of, parts, stream_of

_ROW_DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


class ModelPart:
    """The layers of a model that a session serves. Holds only weak references to the model."""

    def __init__(self, model, config, modules, layers):
        self.model = weakref.ref(model)
        self.config = config
        self.modules = [weakref.ref(module) for module in modules]
        self.layers = layers  # their indices in the model

    def refuse(self, index: int) -> None:
        raise UsageError(
            f"layer {self.layers[index]}: this cache was made for another model; make a new cache "
            "for each model"
        )


@dataclass
class Step:
    """An open step, from the first layer's attention to the last's."""

    tokens: int  # new tokens per row, padding included
    present: torch.Tensor | None  # [rows, tokens]: True except for padding; None: no padding
    attends: bool  # False: the runtime only stores keys and values, PyTorch computes attention
    stream: int  # of the model's work, -1: none
    layer: int = 0  # the next layer

    def __post_init__(self):
        # One token per row without padding, as in most decode steps.
        self.single = self.tokens == 1 and self.present is None and self.attends
        self.lie = None  # the layout of all layers' tensors, once described to the runtime


def _beside(sinks, out, lse) -> torch.Tensor:
    """Adds one logit without a value to each softmax of attention [..., query_heads, dim]: the
    share of the other tokens is sigmoid(lse - sink)."""
    return out * torch.sigmoid(lse - sinks.float())[..., None].to(out.dtype)


class Session:
    """One row of the batch is one sequence of the runtime; padding is never stored."""

    def __init__(self, part: ModelPart, settings: Config, fc_map: FcMap | None):
        self.part = part
        self.settings = settings
        self.fc_map = fc_map
        self.runtime: Runtime | None = None
        self.rows: list = []
        self.length = 0  # tokens of every row, padding included
        self.present: torch.Tensor | None = None  # [rows, length]; None: no padding
        self.open: Step | None = None
        self.lie: tuple = ()  # the tensor layout that `layout` describes
        self.device = None  # the device of `layout`'s tensors
        self.layout: _StepLayout | None = None
        self.out_shape: tuple = ()
        self.softcap: float | None = None  # of scores, in all layers

    # --- called by the cache ---

    def reset(self) -> None:
        self._abort()
        self.rows = []
        self.length = 0
        self.present = None

    def select(self, rows: list[int]) -> None:
        """Replaces the rows: row i becomes the former row rows[i]."""
        self._abort()
        if not self.rows or rows == list(range(len(self.rows))):
            return
        taken = set()
        chosen = []
        for row in rows:
            chosen.append(self.rows[row].fork() if row in taken else self.rows[row])
            taken.add(row)
        self.rows = chosen  # frees the rows that were not chosen
        if self.present is not None:
            self.present = self.present[torch.tensor(rows)]

    def truncate(self, length: int) -> None:
        self._abort()
        if length >= self.length:
            return
        if self.present is not None:
            self.present = self.present[:, :length]
        for index, row in enumerate(self.rows):
            row.truncate(length if self.present is None else int(self.present[index].sum()))
        self.length = length

    def __deepcopy__(self, memo):
        self._abort()
        twin = object.__new__(Session)
        memo[id(self)] = twin
        twin.__dict__.update(self.__dict__)
        twin.rows = [row.fork() for row in self.rows]
        twin.present = None if self.present is None else self.present.clone()
        return twin

    # --- called by the attention function ---

    def step(self, index, module, query, key, value, mask, scaling, sinks=None,
             softcap=None) -> torch.Tensor:
        """Stores key and value of the layer and attends; returns [rows, tokens, query_heads,
        value_dim]. `sinks` [query_heads]: an additional logit of each softmax. `softcap`: of scaled
        scores, the same in all layers."""
        if index == 0:
            self._begin(module, query, key, value, mask, scaling, softcap)
        step = self.open
        if softcap != self.softcap:
            self._abort()
            raise UsageError(
                f"layer {self.part.layers[index]}: softcap = {softcap}, but {self.softcap} in the "
                "first layer; a fasa cache needs the same in all layers"
            )
        if self.part.modules[index]() is not module:
            self.part.refuse(index)
        if step is None or step.layer != index:
            self._abort()
            raise UsageError(
                f"layer {self.part.layers[index]} is called out of order; a fasa cache needs calls "
                "of all layers in order"
            )
        # Fast path of nearly all calls: a decode step whose tensors have the last layer's layout.
        # No further function calls here: each costs a microsecond, because attention evicts their
        # code from the caches.
        if step.lie is not None and sinks is None and step.lie == lie_of(query, key, value):
            out = torch.empty(self.out_shape, dtype=query.dtype, device=self.device)
            self.runtime._step_layer_at(index, key.data_ptr(), value.data_ptr(), query.data_ptr(),
                                        out.data_ptr(), self.layout, step.stream, 0)
        else:
            out = self._tokens(index, module, step, query, key, value, mask, scaling, sinks,
                               softcap)
        step.layer = index + 1
        if step.layer == len(self.part.layers):
            self._end(step)
        return out

    def _tokens(self, index, module, step, query, key, value, mask, scaling, sinks,
                softcap) -> torch.Tensor:
        self._require_fit(index, step, query, key, value)
        if not step.attends:
            return self._masked(index, module, query, key, value, mask, scaling, sinks, softcap)
        if step.present is None:
            return self._whole(index, query, key, value, step, sinks)
        return self._padded(index, query, key, value, step, sinks)

    def _describe(self, lie, query, key, value) -> bool:
        """Describes the layout of the first layer's checked tensors to the runtime; other layers
        and later steps usually have the same. Returns False if the runtime cannot take them
        directly."""
        if key.shape[2] != query.shape[2] or any(x.stride(3) != 1 for x in (query, key, value)):
            return False
        rows, heads, dim = query.shape[0], query.shape[1], value.shape[3]
        self.out_shape = (rows, 1, heads, dim)
        out = query.new_empty((rows, heads, dim))
        self.device = query.device
        self.layout = _StepLayout(parts(key), parts(value), parts(query), parts(out))
        self.lie = lie
        return True

    def _require_fit(self, index, step, query, key, value) -> None:
        rows = len(self.rows)
        try:
            self._require_readable(query, key, value)
            if key.shape[0] != rows or key.shape[2] != step.tokens:
                raise UsageError(
                    f"layer {self.part.layers[index]}: keys of {key.shape[0]} rows and "
                    f"{key.shape[2]} tokens; expected {rows} and {step.tokens} as in the "
                    "first layer"
                )
        except UsageError:
            self._abort()
            raise

    def _whole(self, index, query, key, value, step, sinks) -> torch.Tensor:
        rows, heads, tokens, _ = query.shape
        dim = value.shape[3]
        out = query.new_empty((rows, tokens, heads, dim))
        # These names keep copies made by flat() alive until the runtime has read them.
        k, v, q = flat(key), flat(value), flat(query)
        result = (out.data_ptr(), DTYPES[out.dtype], rows * tokens, heads, dim, heads * dim, dim)
        if sinks is None:
            self.runtime._step_layer(index, parts(k), parts(v), parts(q), result, step.stream)
            return out
        lse = sinks.new_empty((rows, tokens, heads), dtype=torch.float32)
        self.runtime._step_layer(index, parts(k), parts(v), parts(q), result, step.stream,
                                 lse.data_ptr())
        return _beside(sinks, out, lse)

    def _padded(self, index, query, key, value, step, sinks) -> torch.Tensor:
        chosen = [tensor.transpose(1, 2)[step.present] for tensor in (key, value, query)]
        found = query.new_empty((*chosen[2].shape[:2], value.shape[3]))
        lse = None if sinks is None else sinks.new_empty(found.shape[:2], dtype=torch.float32)
        if len(found):
            self.runtime._step_layer(index, *(parts(tensor) for tensor in chosen), parts(found),
                                     step.stream, 0 if lse is None else lse.data_ptr())
        if lse is not None:
            found = _beside(sinks, found, lse)
        out = query.new_zeros((*step.present.shape, *found.shape[1:]))
        out[step.present] = found
        return out

    def _masked(self, index, module, query, key, value, mask, scaling, sinks,
                softcap) -> torch.Tensor:
        """Attention with the caller's mask over stored and new keys, computed by transformers."""
        keys, values = key, value
        if self.length:
            past = [self._read(row, number, index, key, value)
                    for number, row in enumerate(self.rows)]
            keys = torch.cat([torch.stack([k for k, _ in past]), key], dim=2)
            values = torch.cat([torch.stack([v for _, v in past]), value], dim=2)
        if mask.shape[-1] != keys.shape[2]:
            self._abort()
            raise UsageError(f"attention_mask has {mask.shape[-1]} tokens, but there are "
                             f"{keys.shape[2]} keys")
        k, v = flat(key), flat(value)
        self.runtime._step_layer(index, parts(k), parts(v), (), (), self.open.stream)
        return exact(module, query, keys, values, mask, scaling, sinks, softcap)

    def _read(self, row, number, index, key, value):
        """A row's stored keys and values, [heads, length, dim], with zeros for padding."""
        kept = len(row)
        k = key.new_empty((kept, key.shape[1], key.shape[3]))
        v = value.new_empty((kept, value.shape[1], value.shape[3]))
        if kept:
            self.runtime._read_layer(row, index, 0, parts(k), parts(v), self.open.stream)
        if self.present is not None:
            where = self.present[number]
            k, v = (tensor.new_zeros((self.length, *tensor.shape[1:])).index_put((where,), tensor)
                    for tensor in (k, v))
        return k.transpose(0, 1), v.transpose(0, 1)

    def _begin(self, module, query, key, value, mask, scaling, softcap) -> None:
        self._abort()
        if self.part.modules[0]() is not module:
            self.part.refuse(0)
        if module.training:
            raise UsageError("a fasa cache supports inference only; call model.eval()")
        lie = lie_of(query, key, value)
        if lie != self.lie:
            self._require_readable(query, key, value)
        if self.runtime is None:
            self.runtime = self._open(module, query, key, value, scaling, softcap)
            self.softcap = softcap
        rows, tokens = key.shape[0], key.shape[2]
        if self.length == 0 and rows != len(self.rows):
            self.rows = [self.runtime.sequence() for _ in range(rows)]
        if rows != len(self.rows):
            raise UsageError(
                f"{rows} rows for a cache of {len(self.rows)}; give as many as before, or call "
                "reset()"
            )
        own_mask = mask is not None and mask.ndim == 4
        present = None if mask is None or own_mask else self._present(mask, tokens)
        decodes = tokens == 1 and self.length > 0 and not prefilling(self.part.model)
        mode = "decode" if decodes and not own_mask else "prefill"
        if present is None:
            given = [(row, tokens, mode) for row in self.rows]
        else:
            counts = present.sum(1).tolist()
            given = [(row, count, mode) for row, count in zip(self.rows, counts) if count]
        if given:
            self.runtime.begin_step(given)
        self.open = Step(tokens, present, not own_mask, stream_of(query))
        if self.open.single and (lie == self.lie or self._describe(lie, query, key, value)):
            self.open.lie = lie

    def _present(self, mask, tokens) -> torch.Tensor | None:
        if mask.shape[-1] != self.length + tokens:
            raise UsageError(
                f"attention_mask has {mask.shape[-1]} tokens; expected {self.length + tokens}, the "
                "number in the cache and the new ones"
            )
        new = mask[:, -tokens:].bool()
        return None if bool(new.all()) else new

    def _require_readable(self, query, key, value) -> None:
        device = self._tensors_device(query)
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            if device_of(tensor) != device or tensor.dtype not in DTYPES:
                raise UsageError(
                    f"{name} is {tensor.dtype} on {tensor.device}; expected float32, float16 or "
                    f"bfloat16 on {device}"
                )

    def _tensors_device(self, query) -> str:
        """Where tensors have to be: on the GPU that the settings name, or, where they leave it
        open, wherever the model is; for the other devices in host memory."""
        if self.runtime is not None:
            name = self.runtime.device
        else:
            name = self.settings.device
            if name == "auto":
                name = device_of(query)
        name = "cuda:0" if name == "cuda" else name
        return name if name.startswith("cuda:") else "cpu"

    def _open(self, module, query, key, value, scaling, softcap) -> Runtime:
        layers = len(self.part.layers)
        geometry = geometry_of(module, self.part.config, layers, query, key, value, scaling,
                               softcap)
        settings = self.settings
        if settings.device == "auto":
            settings = copy.copy(settings)
            settings.update(device=self._tensors_device(query))
        return Runtime(geometry, settings, row_dtype=_ROW_DTYPES[key.dtype],
                       slice_dims=self._slice_dims(module, geometry))

    def _slice_dims(self, module, geometry):
        """The map's first chunks for this session's layers and this rank's KV heads."""
        if self.fc_map is None:
            return None
        self.fc_map.require_fits(fingerprint(self.part.model()), self.settings.map or "fc_map")
        dims = self.fc_map.slice_dims(self.settings.chunks_of(geometry),
                                      self.settings.effective_fine_chunks())
        rank, _ = shard_of(module)
        heads = geometry.kv_heads
        return np.ascontiguousarray(dims[self.part.layers, rank * heads:(rank + 1) * heads])

    def _end(self, step) -> None:
        self.open = None
        if step.lie is not None or self.runtime.in_step:
            self.runtime.end_step()
        if step.present is not None or self.present is not None:
            shape = (len(self.rows), self.length)
            past, new = self.present, step.present
            device = (past if new is None else new).device
            if past is None:
                past = torch.ones(shape, dtype=torch.bool, device=device)
            if new is None:
                new = torch.ones((len(self.rows), step.tokens), dtype=torch.bool, device=device)
            self.present = torch.cat([past, new], dim=1)
        self.length += step.tokens

    def _abort(self) -> None:
        """Aborts the open step of a forward that failed."""
        if self.open is None:
            return
        self.open = None
        if self.runtime.in_step:
            self.runtime.abort_step()
