"""Frequency-aware sparse attention over a KV cache in tiers.

The core needs NumPy alone; fasa.transformers brings it into Hugging Face models.
"""
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
    calibrate,
    plan,
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
