"""Properties of a model that transformers' config does not state in one place."""
from __future__ import annotations

import inspect
import sys

import torch

from .. import Geometry, ModelFingerprint, UsageError


def text_config(model):
    return model.config.get_text_config(decoder=True)


def rope_parameters(config) -> dict:
    """The rope parameters of full attention layers. Raises UsageError for a model without RoPE."""
    rope = getattr(config, "rope_parameters", None)
    if rope and "full_attention" in rope:
        rope = rope["full_attention"]
    if not rope or not rope.get("rope_theta"):
        raise UsageError(
            f"{config.model_type}: config.rope_parameters = {rope!r}; fasa needs a model with "
            "rotary position embeddings and their rope_theta"
        )
    return dict(rope)


def _quarter_turn(source):
    """A function that rotates all pairs of the last dimension by a right angle, paired as in the
    model's source; None if the source has no such function."""
    if rotate := getattr(source, "rotate_half", None):
        return rotate
    apply = getattr(source, "_apply_rotary_emb", None)
    parameters = list(inspect.signature(apply).parameters) if apply else []
    if parameters != ["x", "cos", "sin"]:
        return None
    return lambda x: apply(x, torch.zeros(x.shape[-1] // 2), torch.ones(x.shape[-1] // 2))


def rotary_layout(module) -> str:
    """Which dimensions the module's rotation pairs: "half" or "interleaved"."""
    rotate = _quarter_turn(sys.modules.get(type(module).__module__))
    name = f"{type(module).__module__}.{type(module).__name__}"
    if rotate is None:
        raise UsageError(f"{name}: its module has no rotate_half, so the rotary layout is unknown")
    rotated = rotate(torch.arange(1.0, 9.0)).tolist()
    if rotated == [-5, -6, -7, -8, 1, 2, 3, 4]:
        return "half"
    if rotated == [-2, 1, -4, 3, -6, 5, -8, 7]:
        return "interleaved"
    raise UsageError(f"{name}: rotate_half pairs dimensions in a way that fasa does not support")


def rotary_dims(config, head_dim: int) -> int:
    share = rope_parameters(config).get("partial_rotary_factor")
    if share is None:
        share = getattr(config, "partial_rotary_factor", None)
    return head_dim if share is None else int(head_dim * share)


def geometry_of(module, config, layers: int, query, key, value, scale: float | None,
                softcap: float | None = None) -> Geometry:
    """The geometry from the tensors of the first step: a tensor-parallel rank sees only its own
    heads."""
    head_dim = key.shape[-1]
    return Geometry(
        layers=layers,
        kv_heads=key.shape[1],
        query_heads=query.shape[1],
        head_dim=head_dim,
        value_dim=value.shape[-1],
        rotary_dims=rotary_dims(config, head_dim),
        rotary_layout=rotary_layout(module),
        scale=scale,
        score_cap=softcap or 0.0,
    )


def key_projection(module):
    """The linear module that computes keys, possibly stacked with queries and values."""
    return getattr(module, "k_proj", None) or getattr(module, "qkv_proj", None)


def attention_modules(model, layers: list[int]) -> list[torch.nn.Module]:
    """The attention module of each of these layers of the text model."""
    found = {}
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    for module in decoder.modules():
        index = getattr(module, "layer_idx", None)
        if isinstance(index, int) and key_projection(module) is not None:
            found.setdefault(index, module)
    missing = [layer for layer in layers if layer not in found]
    if missing:
        raise UsageError(
            f"{type(model).__name__}: no attention module with layer_idx and k_proj or qkv_proj "
            f"for layers {missing}"
        )
    return [found[layer] for layer in layers]


def shard_of(module) -> tuple[int, int]:
    """(rank, ranks) of a tensor-parallel module's KV heads; (0, 1) if it is not split."""
    mesh = getattr(getattr(key_projection(module), "weight", None), "device_mesh", None)
    return (0, 1) if mesh is None else (mesh.get_local_rank(), mesh.size())


def require_divisible(model, config) -> None:
    """Raises UsageError if tensor parallelism would split a KV head."""
    ranks = getattr(model, "tp_size", None) or 1
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    if heads % ranks:
        raise UsageError(
            f"tp_size = {ranks} does not divide the model's {heads} KV heads; use one that does"
        )


def require_one_rotation(config) -> None:
    """Raises UsageError if transformers uses other rotary frequencies beyond the original context:
    it would drop the cache there, or mix both in chunks."""
    original = getattr(config, "original_max_position_embeddings", None)
    longer = original is not None and config.max_position_embeddings > original
    if longer and rope_parameters(config).get("rope_type") == "longrope":
        raise UsageError(
            f"{config.model_type}: rope_type = longrope beyond original_max_position_embeddings = "
            f"{original}; transformers drops its cache there. Use `fasa generate`, or set "
            "max_position_embeddings to that number"
        )


def _first_key_row(module, query_rows: int) -> str:
    weight = key_projection(module).weight
    row = weight[0 if hasattr(module, "k_proj") else query_rows].detach()  # all queries, then keys
    if hasattr(row, "full_tensor"):
        row = row.full_tensor()
    if hasattr(row, "dequantize") and type(row) is not torch.Tensor:
        row = row.dequantize()
    bits = row.to(device="cpu", dtype=torch.bfloat16).view(torch.int16)
    return "".join(f"{value & 0xFFFF:04x}" for value in bits.tolist())


def fingerprint(model) -> ModelFingerprint:
    """The properties that an FC map shares with its model, in the format of `fasa calibrate`."""
    from .._studies import rope_scaling_text  # loads what models need: only for FC maps

    config = text_config(model)
    layers = config.num_hidden_layers
    modules = attention_modules(model, list(range(layers)))
    rope = rope_parameters(config)
    print_ = ModelFingerprint()
    print_.model_type = config.model_type
    print_.layers = layers
    print_.query_heads = config.num_attention_heads
    print_.kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    print_.key_dim = print_.value_dim = head_dim
    print_.rotary_dims = rotary_dims(config, head_dim)
    print_.rotary_layout = rotary_layout(modules[0])
    print_.rope_theta = float(rope["rope_theta"])
    print_.rope_scaling = rope_scaling_text(rope, config.max_position_embeddings)
    queries = config.num_attention_heads * head_dim
    print_.key_rows = [_first_key_row(module, queries) for module in modules]
    return print_


def parameters_of(function) -> list[str]:
    return list(inspect.signature(function).parameters)
