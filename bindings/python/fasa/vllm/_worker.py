"""vLLM's workers with fasa's memory: the number of blocks is the number of fasa's pages that
fit."""
from __future__ import annotations

import functools

from .. import UsageError
from . import CPU_BACKEND, GPU_BACKEND, require_version
from ._geometry import rotation_of
from ._settings import Settings, on_gpu_platform, refuse, refuse_device
from ._store import close_store, current_store, remember_rotation, store_for


def _require_registered() -> None:
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    member, path = ((AttentionBackendEnum.CUSTOM, GPU_BACKEND) if on_gpu_platform() else
                    (AttentionBackendEnum.CPU_ATTN, CPU_BACKEND))
    if not member.is_overridden():
        raise UsageError(
            "vLLM did not load fasa's plugin in this process: check that fasa is installed as a "
            'package here (pip show fasa) and that VLLM_PLUGINS, if set, contains "fasa"'
        )
    if member.get_path() != path:
        raise UsageError(
            f"the attention backend {member.name} belongs to another plugin, {member.get_path()}: "
            'disable that plugin (VLLM_PLUGINS="fasa")'
        )


def _require_chosen(vllm_config) -> None:
    """On a GPU, raises UsageError unless fasa's backend is selected."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    chosen = vllm_config.attention_config.backend
    if on_gpu_platform() and chosen is not AttentionBackendEnum.CUSTOM:
        raise UsageError(
            "--worker-cls selects fasa, but --attention-backend is "
            f"{getattr(chosen, 'name', chosen)}: allowed: CUSTOM"
        )


def _require_one_group(groups) -> None:
    if len(groups) != 1:
        raise UsageError(
            f"a model with {len(groups)} groups of KV caches: fasa supports one, of full attention "
            "in every layer"
        )


class _Memory:
    """A mixin, placed before vLLM's worker in a class's bases."""

    def __init__(self, vllm_config, *args, **kwargs):
        require_version()
        _require_registered()
        self._settings = Settings.of(vllm_config)
        if self._settings is None:
            raise UsageError(
                "--worker-cls selects fasa, but fasa is not configured: give --additional-config "
                "'{\"fasa\": {}}', or omit --worker-cls"
            )
        refuse_device(self._settings)
        _require_chosen(vllm_config)
        refuse(vllm_config)
        super().__init__(vllm_config, *args, **kwargs)

    def load_model(self, *args, **kwargs):
        super().load_model(*args, **kwargs)
        remember_rotation(rotation_of(self.model_runner.get_model()))

    def determine_available_memory(self) -> int:
        """The pages that fit, in bytes of vLLM's stubs, because vLLM divides by a block's stub
        size."""
        available = super().determine_available_memory()
        specs = self.get_kv_cache_spec()
        stubs = sum(spec.page_size_bytes for spec in specs.values())
        spec = next(iter(specs.values()))
        layers = self.vllm_config.compilation_config.static_forward_context
        scale = layers[next(iter(specs))].impl.scale
        store = store_for(self.vllm_config, self._settings, list(specs), spec.head_size, scale)
        return store.pages_that_fit(available, stubs) * stubs

    def initialize_from_config(self, kv_cache_config):
        _require_one_group(kv_cache_config.kv_cache_groups)
        return super().initialize_from_config(kv_cache_config)

    def execute_model(self, scheduler_output):
        copies = scheduler_output.kv_cache_block_copies
        if copies:
            current_store().paged.copy_pages([tuple(copy) for copy in copies])
        return super().execute_model(scheduler_output)

    def sleep(self, *args, **kwargs):
        raise UsageError("fasa does not support sleep mode, because its pages would be lost")

    wake_up = sleep

    def shutdown(self):
        close_store()
        return super().shutdown()


@functools.cache
def cpu_worker():
    from vllm.v1.worker.cpu_worker import CPUWorker

    class FasaCpuWorker(_Memory, CPUWorker):
        def determine_available_memory(self) -> int:
            if self.parallel_config.pipeline_parallel_size > 1:
                # On later pipeline stages, this run creates the receive buffers; without
                # compilation vLLM omits it.
                self.model_runner.profile_run()
            return super().determine_available_memory()

    return FasaCpuWorker


@functools.cache
def gpu_worker():
    from vllm.v1.worker.gpu_worker import Worker

    class FasaGpuWorker(_Memory, Worker):
        pass

    return FasaGpuWorker
