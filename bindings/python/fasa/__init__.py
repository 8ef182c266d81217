"""Frequency-aware sparse attention over a KV cache in tiers.

The core needs NumPy alone; fasa.transformers brings it into Hugging Face models.
"""
from typing import TYPE_CHECKING

from ._core import (
    BudgetError,
    Config,
    DeviceError,
    Error,
    FcMap,
    Geometry,
    HeadRanking,
    InputError,
    ModelFingerprint,
    Paged,
    Runtime,
    Sequence,
    UsageError,
    rank_chunks,
    sparse_decode,
)

__all__ = [
    "BudgetError",
    "Config",
    "DeviceError",
    "Error",
    "FcMap",
    "Geometry",
    "HeadRanking",
    "InputError",
    "ModelFingerprint",
    "Paged",
    "Runtime",
    "Sequence",
    "UsageError",
    "calibrate",
    "plan",
    "rank_chunks",
    "sparse_decode",
]
__version__ = "0.1.0"

if TYPE_CHECKING:
    from ._studies import calibrate, plan


def __getattr__(name):
    # What needs models, oneDNN and OpenMP is loaded when it is first used.
    if name in ("calibrate", "plan"):
        from . import _studies
        return getattr(_studies, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
