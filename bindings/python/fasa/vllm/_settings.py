"""fasa's part of --additional-config, and checks of vLLM's configuration."""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch

from .. import Config, UsageError

ROW_DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
BLOCK_SIZES = (64, 128, 192, 256)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Options of fasa (docs/configuration.md)."""

    options: Mapping[str, object]
    experimental_cuda: bool = False

    @classmethod
    def of(cls, vllm_config) -> Settings | None:
        """The settings; None if the configuration does not request fasa."""
        given = vllm_config.additional_config
        if not isinstance(given, Mapping) or "fasa" not in given:
            return None
        asked = given["fasa"]
        if not isinstance(asked, Mapping):
            raise UsageError(
                f'--additional-config: "fasa" = {asked!r}: allowed: an object of options, {{}} for '
                "the defaults"
            )
        options = dict(asked)
        experimental = options.pop("experimental_cuda", False)
        if not isinstance(experimental, bool):
            raise UsageError(
                f'--additional-config, "fasa": experimental_cuda = {experimental!r}: '
                "allowed: true, false"
            )
        settings = cls(options, experimental)
        settings.config()
        return settings

    def config(self) -> Config:
        """The config: these options over the FASA_* variables. Raises UsageError naming a wrong
        option."""
        try:
            return Config(**self.options)
        except UsageError as error:
            raise UsageError(f'--additional-config, "fasa": {error}') from None


def on_gpu_platform() -> bool:
    from vllm.platforms import current_platform

    return not current_platform.is_cpu()


def refuse_device(settings: Settings) -> None:
    """Raises UsageError if fasa's device does not match vLLM's."""
    from vllm.platforms import current_platform

    name = settings.config().device
    cuda = name == "cuda" or name.startswith("cuda:")
    if current_platform.is_cpu():
        if cuda:
            raise UsageError(
                f'"device" = {name}, but this vLLM is built for CPUs: allowed: auto, cpu, emulated'
            )
        return
    if not current_platform.is_cuda():
        raise UsageError("fasa does not support the platform of this vLLM; allowed: CPU, CUDA")
    if not settings.experimental_cuda:
        raise UsageError(
            "fasa in vLLM on cuda has only been tested on a simulated GPU, never on a real one: "
            'use vLLM for CPUs, or set {"fasa": {"experimental_cuda": true}} to try it'
        )
    if name != "auto":
        raise UsageError(
            f'"device" = {name}, but vLLM chooses the GPU of a process: allowed: auto'
        )


def refuse(vllm_config) -> None:
    """Raises UsageError naming the first setting that fasa does not support."""
    for wrong, what in _refusals(vllm_config):
        if wrong:
            raise UsageError(f"fasa does not support {what}; disable it, or run vLLM without fasa")


def _refusals(vllm_config):
    model, cache = vllm_config.model_config, vllm_config.cache_config
    parallel = vllm_config.parallel_config
    model_dtype = str(model.dtype).removeprefix("torch.")
    yield vllm_config.speculative_config is not None, "speculative decoding (--speculative-config)"
    yield (vllm_config.kv_transfer_config is not None,
           "KV connectors (--kv-transfer-config), because they transfer vLLM's own blocks, which "
           "are empty")
    yield model.enable_sleep_mode, "sleep mode (--enable-sleep-mode)"
    yield (cache.cache_dtype not in ("auto", model_dtype),
           f"quantised KV cache (--kv-cache-dtype {cache.cache_dtype}): use fasa's options "
           "row_dtype and slice_dtype")
    yield (model.dtype not in ROW_DTYPES, f"model in {model_dtype}")
    yield model.use_mla, "multi-head latent attention"
    yield model.is_encoder_decoder, "encoder-decoder models"
    yield parallel.decode_context_parallel_size > 1, "decode context parallelism"
    yield parallel.prefill_context_parallel_size > 1, "prefill context parallelism"
    yield parallel.enable_dbo, "dual-batch overlap (--enable-dbo)"
    heads = model.get_total_num_kv_heads()
    ranks = parallel.tensor_parallel_size
    yield (heads % ranks != 0,
           f"tensor parallelism of {ranks} ranks over {heads} KV heads, which would split a head")
    yield (cache.block_size not in BLOCK_SIZES,
           f"blocks of {cache.block_size} tokens (--block-size; allowed: 64, 128, 192, 256)")


def refuse_layer(*, alibi_slopes, sliding_window, logits_soft_cap, attn_type, kv_sharing, extra,
                 kv_cache_dtype, model_dtype) -> None:
    """Refuses layers with features other than causal attention over all tokens."""
    for wrong, what in [
        (alibi_slopes is not None, "ALiBi"),
        (sliding_window is not None, "sliding windows"),
        (bool(logits_soft_cap), "soft-capped logits"),
        (attn_type != "decoder", f"attention of the kind {attn_type}"),
        (kv_sharing is not None, "layers that share another's keys and values"),
        (extra.get("sinks") is not None, "attention sinks that are part of the model"),
        (kv_cache_dtype not in ("auto", model_dtype), f"quantised KV cache ({kv_cache_dtype})"),
    ]:
        if wrong:
            raise UsageError(
                f"fasa does not support {what}, which a layer of this model uses; run vLLM "
                "without fasa")
    others = [name for name, value in extra.items() if value is not None and name != "sinks"]
    if others:
        raise UsageError(f"fasa does not support {', '.join(sorted(others))} of attention layers")
