"""fasa among vLLM's attention backends."""
from __future__ import annotations

import dataclasses

import torch
from vllm.config import get_current_vllm_config_or_none
from vllm.v1.attention.backend import AttentionBackend, MultipleOf
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

from .. import UsageError
from ._impl import FasaImpl
from ._metadata import FasaMetadataBuilder
from ._settings import BLOCK_SIZES, ROW_DTYPES, Settings, on_gpu_platform, refuse, refuse_device

STUB_BYTES = 2  # per token and layer, in vLLM's own pool


def stub_of(spec):
    """A spec for vLLM's blocks, which only count fasa's pages and hold no keys or values."""
    return dataclasses.replace(spec, dtype=torch.bfloat16, num_head_slots=1,
                               state_content_bytes=STUB_BYTES)


# Whether the engine whose layers this process made last uses fasa: vLLM requests specs and builders
# without a current configuration.
_asked = False


def _is_asked() -> bool:
    global _asked
    vllm_config = get_current_vllm_config_or_none()
    if vllm_config is not None:
        settings = Settings.of(vllm_config)
        _asked = settings is not None
        if settings is not None:
            refuse_device(settings)
            _require_worker(vllm_config)
            refuse(vllm_config)
    return _asked


def _require_asked() -> None:
    if not _is_asked():
        raise UsageError(
            "--attention-backend CUSTOM selects fasa, but fasa is not configured: give "
            "--additional-config '{\"fasa\": {...}}', or use another backend"
        )


def _require_worker(vllm_config) -> None:
    worker = vllm_config.parallel_config.worker_cls
    expected = "fasa.vllm.GpuWorker" if on_gpu_platform() else "fasa.vllm.CpuWorker"
    if worker != expected:
        raise UsageError(
            f'--additional-config configures "fasa", but --worker-cls is {worker}: allowed: '
            f"{expected}, which accounts for fasa's memory"
        )


class FasaCpuBackend(CPUAttentionBackend):
    """vLLM's CPU backend, which becomes fasa's if the configuration requests fasa."""

    @staticmethod
    def get_impl_cls():
        return FasaImpl if _is_asked() else CPUAttentionBackend.get_impl_cls()

    @staticmethod
    def get_builder_cls():
        return FasaMetadataBuilder if _is_asked() else CPUAttentionBackend.get_builder_cls()

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None):
        if _is_asked():
            return [MultipleOf(BLOCK_SIZES[0])]
        return CPUAttentionBackend.get_supported_kernel_block_sizes(kv_cache_spec)

    @classmethod
    def customize_spec(cls, spec):
        return stub_of(spec) if _is_asked() else super().customize_spec(spec)

    @classmethod
    def supports_kv_connector(cls) -> bool:
        return not _is_asked()


class FasaGpuBackend(AttentionBackend):
    """fasa's GPU backend: GPUs have several backends, and selecting this one selects fasa."""

    supported_dtypes = list(ROW_DTYPES)
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls():
        _require_asked()
        return FasaImpl

    @staticmethod
    def get_builder_cls():
        _require_asked()
        return FasaMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None):
        return [MultipleOf(BLOCK_SIZES[0])]

    @classmethod
    def customize_spec(cls, spec):
        return stub_of(spec)

    @classmethod
    def supports_kv_connector(cls) -> bool:
        return False

    @classmethod
    def supports_pcp(cls) -> bool:
        return False

    supports_dcp = supports_pcp
