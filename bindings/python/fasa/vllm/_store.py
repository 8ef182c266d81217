"""The pages of this process: one store, whose page ids are vLLM's block ids."""
from __future__ import annotations

import torch

from .. import Paged, UsageError
from ._geometry import Part, Rotation, map_of, part_of, whole_geometry
from ._settings import ROW_DTYPES, Settings, on_gpu_platform

_DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


def on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cuda"


def stream_of(tensor: torch.Tensor) -> int:
    """PyTorch's current stream on the tensor's device, for fasa.Paged; -1: none."""
    return torch.cuda.current_stream(tensor.device).cuda_stream if on_gpu(tensor) else -1


def own_gpu() -> str:
    """The GPU that vLLM has set for this process."""
    return f"cuda:{torch.cuda.current_device()}"


def lie_of(tensor: torch.Tensor) -> tuple:
    """[tokens, heads, dim] by address, as fasa.Paged takes it; the caller keeps the tensor
    alive."""
    shape, strides = tensor.shape, tensor.stride()
    return (tensor.data_ptr(), _DTYPES[tensor.dtype], shape[0], shape[1], shape[2], strides[0],
            strides[1])


class Store:
    """The pages of this process's part of the model. Its layers are numbered from 0."""

    def __init__(self, vllm_config, settings: Settings, part: Part, head_dim: int, scale: float,
                 rotation: Rotation | None):
        self._vllm_config = vllm_config
        config = settings.config()
        self._gpu = on_gpu_platform()
        if self._gpu:
            config.device = own_gpu()
        geometry = whole_geometry(vllm_config, head_dim, scale, rotation)
        self.part = part
        self._opening = {
            "page_size": vllm_config.cache_config.block_size,
            "max_sequences": vllm_config.scheduler_config.max_num_seqs,
            "row_dtype": ROW_DTYPES[vllm_config.model_config.dtype],
            "fc_map": map_of(vllm_config, config, geometry),
            "layers": part.layers,
            "kv_heads": part.kv_heads,
        }
        self._geometry, self._config = geometry, config
        self._pages: Paged | None = None

    @property
    def paged(self) -> Paged:
        if self._pages is None:
            raise UsageError("fasa's pages are closed, because the engine has shut down")
        return self._pages

    def sizes(self) -> dict:
        """Bytes per page, and bytes independent of the number of pages."""
        return Paged.sizes(
            self._geometry, self._config,
            max_context=self._vllm_config.model_config.max_model_len,
            step_tokens=self._vllm_config.scheduler_config.max_num_batched_tokens,
            **self._opening,
        )

    def pages_that_fit(self, available: int, stub_bytes: int) -> int:
        """The number of pages that fit into `available` bytes of this process's memory and the
        options' limits, each with vLLM's stub. Raises UsageError if none fits."""
        sizes = self.sizes()
        page, fixed = sizes["page"], sizes["fixed"]
        host = {key: part["host_rows"] + part["host_tables"] for key, part in sizes.items()}
        # On a CPU, rows in host memory count in the same limit; on a GPU they do not.
        both = not self._gpu
        limits = [(available, page["device_total"] + stub_bytes + both * host["page"],
                   fixed["device_total"] + both * host["fixed"])]
        if self._config.device_memory:
            limits.append((self._config.device_memory, page["device_total"], fixed["device_total"]))
        host_memory = self._config.host_memory or (self._gpu and self._share_of_host())
        if host_memory and host["page"]:
            limits.append((host_memory, host["page"], host["fixed"]))
        pages = min((limit - taken) // each for limit, each, taken in limits)
        if pages < 1:
            limit, each, taken = min(limits, key=lambda one: (one[0] - one[2]) // one[1])
            raise UsageError(
                f"{limit} bytes for the KV cache: fasa needs {taken} bytes in addition to {each} "
                "bytes per block; allow more (VLLM_CPU_KVCACHE_SPACE, --kv-cache-memory-bytes, "
                "device_memory, host_memory), or fewer sequences (--max-num-seqs) or tokens a "
                "step (--max-num-batched-tokens)"
            )
        if self._gpu and not self._config.device_memory:
            # The rest of vLLM's share of the GPU is the limit for memory taken on demand, such as
            # hot rows.
            self._config.device_memory = available - pages * stub_bytes
        return pages

    def _share_of_host(self) -> int:
        """The host memory that this process may pin if no option sets it."""
        import psutil

        reserved = 2 << 30
        ranks = self._vllm_config.parallel_config.world_size
        return max(1, (psutil.virtual_memory().available - reserved) // ranks)

    def open(self, pages: int) -> None:
        if self._pages is not None and self._pages.num_pages == pages:
            return
        self._pages = None  # frees the old pages first
        self._pages = Paged(self._geometry, self._config, num_pages=pages, **self._opening)

    def close(self) -> None:
        self._pages = None


_store: Store | None = None
_rotation: Rotation | None = None


def remember_rotation(rotation: Rotation | None) -> None:
    global _rotation
    _rotation = rotation


def store_for(vllm_config, settings: Settings, layer_names: list[str], head_dim: int,
              scale: float) -> Store:
    """This process's store; created again for another model."""
    global _store
    from vllm.distributed.parallel_state import get_tp_group

    part = part_of(vllm_config, layer_names, get_tp_group().rank_in_group)
    if _store is None or _store._vllm_config is not vllm_config or _store.part != part:
        close_store()
        _store = Store(vllm_config, settings, part, head_dim, scale, _rotation)
    return _store


def current_store() -> Store | None:
    return _store


def close_store() -> None:
    global _store
    if _store is not None:
        _store.close()
    _store = None
