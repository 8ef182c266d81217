"""The part of vLLM that fasa.vllm uses, for tests without vLLM: names, bases and fields of 0.32."""
import dataclasses
import enum
import sys
import types


class AttentionBackendEnum(enum.Enum):
    CUSTOM = None
    CPU_ATTN = "cpu"

    def is_overridden(self):
        return self in REGISTERED

    def get_path(self):
        return REGISTERED[self]


REGISTERED = {}


def register_backend(backend, class_path=None):
    REGISTERED[backend] = class_path


class AttentionBackend:
    supported_dtypes: list = []

    @classmethod
    def customize_spec(cls, spec):
        return spec


class CPUAttentionBackend(AttentionBackend):
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name():
        return "CPU_ATTN"

    @staticmethod
    def get_impl_cls():
        return "vLLM's own"

    @staticmethod
    def get_builder_cls():
        return "vLLM's own"

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None):
        return [MultipleOf(32)]


class AttentionMetadataBuilder:
    _cudagraph_support = "ALWAYS"

    def __class_getitem__(cls, _):
        return cls

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        self.vllm_config = vllm_config


@dataclasses.dataclass(frozen=True)
class MultipleOf:
    base: int


@dataclasses.dataclass(frozen=True)
class Spec:
    """FullAttentionSpec."""

    block_size: int
    num_kv_heads: int
    head_size: int
    dtype: object
    num_head_slots: int | None = None
    state_content_bytes: int | None = None

    @property
    def page_size_bytes(self):
        heads = self.num_head_slots or self.num_kv_heads
        return heads * self.block_size * (
            self.state_content_bytes or 2 * self.head_size * self.dtype.itemsize)


CURRENT = {"config": None}


def config(**changes):
    """The fields of a VllmConfig that are read."""
    import torch

    def part(**fields):
        return types.SimpleNamespace(**fields)

    made = part(
        additional_config={"fasa": {}}, speculative_config=None, kv_transfer_config=None,
        model_config=part(dtype=torch.float32, enable_sleep_mode=False, use_mla=False,
                          is_encoder_decoder=False, get_total_num_kv_heads=lambda: 2, model="",
                          hf_text_config=part(num_hidden_layers=2, num_attention_heads=4),
                          max_model_len=1024),
        cache_config=part(cache_dtype="auto", block_size=64, num_gpu_blocks=16),
        scheduler_config=part(max_num_seqs=4, max_num_batched_tokens=256),
        parallel_config=part(decode_context_parallel_size=1, prefill_context_parallel_size=1,
                             enable_dbo=False, tensor_parallel_size=1, world_size=1,
                             worker_cls="fasa.vllm.CpuWorker"),
        attention_config=part(backend=None))
    for path, value in changes.items():
        target, names = made, path.split("__")
        for name in names[:-1]:
            target = getattr(target, name)
        setattr(target, names[-1], value)
    return made


def platform(name):
    return types.SimpleNamespace(is_cpu=lambda: name == "cpu", is_cuda=lambda: name == "cuda")


class GpuWorker:
    """vllm.v1.worker.gpu_worker.Worker."""


def install(version=(0, 32, 0)):
    """Replaces vLLM in this process."""
    def module(name, **names):
        made = types.ModuleType(name)
        made.__dict__.update(names)
        sys.modules[name] = made
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, made)

    module("vllm")
    module("vllm.version", __version__=".".join(map(str, version)), __version_tuple__=version)
    module("vllm.platforms", current_platform=platform("cpu"))
    module("vllm.config", get_current_vllm_config=lambda: CURRENT["config"],
           get_current_vllm_config_or_none=lambda: CURRENT["config"],
           get_layers_from_vllm_config=lambda config, kind, names: {
               name: config.layers[name] for name in names})
    module("vllm.v1")
    module("vllm.v1.attention")
    module("vllm.v1.attention.backends")
    module("vllm.v1.attention.backends.registry", AttentionBackendEnum=AttentionBackendEnum,
           register_backend=register_backend)
    module("vllm.v1.attention.backends.cpu_attn", CPUAttentionBackend=CPUAttentionBackend)
    module("vllm.v1.attention.backend", AttentionBackend=AttentionBackend, MultipleOf=MultipleOf,
           AttentionImpl=type("AttentionImpl", (), {}),
           AttentionType=types.SimpleNamespace(DECODER="decoder"),
           AttentionMetadataBuilder=AttentionMetadataBuilder,
           AttentionCGSupport=types.SimpleNamespace(NEVER=0))
    module("vllm.v1.worker")
    module("vllm.v1.worker.gpu_worker", Worker=GpuWorker)
    module("vllm.model_executor")
    module("vllm.model_executor.layers")
    module("vllm.model_executor.layers.attention", Attention=object)
    module("vllm.model_executor.models")
    module("vllm.model_executor.models.utils",
           extract_layer_index=lambda name: int(name.split(".")[2]))
    module("vllm.distributed")
    module("vllm.distributed.parallel_state",
           get_tp_group=lambda: types.SimpleNamespace(rank_in_group=0))
