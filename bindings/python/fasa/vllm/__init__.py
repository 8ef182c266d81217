"""Attention and KV cache of a vLLM engine by fasa: docs/vllm.md.

vLLM calls register() by its entry point in every process. The registered backend behaves as vLLM's
own unless --additional-config '{"fasa": {...}}' requests fasa. --worker-cls fasa.vllm.CpuWorker, on
a GPU fasa.vllm.GpuWorker, detects processes of vLLM that did not find register().
"""
from __future__ import annotations

from .. import UsageError

__all__ = ["CpuWorker", "GpuWorker", "register"]

CPU_BACKEND = "fasa.vllm._backend.FasaCpuBackend"
GPU_BACKEND = "fasa.vllm._backend.FasaGpuBackend"  # --attention-backend CUSTOM
OLDEST, NEWEST = (0, 32), (0, 33)  # minor versions of vLLM


def require_version() -> None:
    """Raises UsageError for an unsupported version of vLLM."""
    from vllm.version import __version__, __version_tuple__

    if not OLDEST <= tuple(__version_tuple__[:2]) <= NEWEST:
        raise UsageError(
            f"vLLM {__version__}: fasa.vllm supports 0.{OLDEST[1]} to 0.{NEWEST[1]}; install one "
            "of these versions, or a newer fasa"
        )


def register() -> None:
    """The entry point vllm.general_plugins. With an unsupported version of vLLM it changes nothing;
    the worker reports the version if fasa is requested."""
    try:
        require_version()
    except UsageError:
        return
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    custom = AttentionBackendEnum.CUSTOM
    if current_platform.is_cpu():  # the only backend of this platform, under any name
        register_backend(AttentionBackendEnum.CPU_ATTN, CPU_BACKEND)
    elif current_platform.is_cuda() and not custom.is_overridden():  # not by another plugin
        register_backend(custom, GPU_BACKEND)


def __getattr__(name: str):
    """vLLM's workers with fasa's memory, created on first use."""
    if name in ("CpuWorker", "GpuWorker"):
        from . import _worker

        return {"CpuWorker": _worker.cpu_worker, "GpuWorker": _worker.gpu_worker}[name]()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
