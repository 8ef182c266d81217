"""The object that a cache layer returns in place of keys and values."""
from __future__ import annotations

import weakref

import torch

from .. import UsageError


class Handle(torch.Tensor):
    """Stands for keys and values that the runtime holds.

    It carries its cache layer through the model to the attention function. All other uses raise,
    because another attention implementation would compute on an empty tensor.
    """

    @staticmethod
    def of(layer) -> Handle:
        handle = torch.Tensor._make_subclass(Handle, torch.empty(0))
        handle.layer = weakref.ref(layer)  # weak: no reference cycle, so the cache is freed at once
        return handle

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise UsageError(
            f"{getattr(func, '__name__', func)} of keys that fasa stores: a fasa cache needs "
            'attn_implementation="fasa"; set it when loading the model, or call '
            "fasa.transformers.enable(model)"
        )

    def __repr__(self, **_):
        return "fasa.transformers.Handle()"

    def __deepcopy__(self, memo):
        raise UsageError("a handle cannot be copied, because it does not hold the keys; copy the "
                         "cache")
