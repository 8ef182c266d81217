"""The geometry of a model's attention, and a rank's part of it."""
from __future__ import annotations

import dataclasses
import os

from .. import FcMap, Geometry, UsageError


@dataclasses.dataclass(frozen=True)
class Rotation:
    """The rotation of a layer's keys: the first `dims` dimensions, in pairs (i, i + dims/2) or (2i,
    2i + 1)."""

    dims: int
    layout: str


def rotation_of(model) -> Rotation | None:
    """The rotation of the model's attention layers; None if no module defines it. Raises UsageError
    if layers differ."""
    found = {
        Rotation(module.rotary_dim, "half" if module.is_neox_style else "interleaved")
        for module in model.modules()
        if hasattr(module, "rotary_dim") and hasattr(module, "is_neox_style")
    }
    if len(found) > 1:
        raise UsageError(f"the model rotates keys in {len(found)} ways; fasa supports one")
    return found.pop() if found else None


@dataclasses.dataclass(frozen=True)
class Part:
    """The layers and KV heads of this process, each (first, count)."""

    layers: tuple[int, int]
    kv_heads: tuple[int, int]


def layer_number(name: str) -> int:
    from vllm.model_executor.models.utils import extract_layer_index

    return extract_layer_index(name)


def part_of(vllm_config, layer_names: list[str], tp_rank: int) -> Part:
    """The part of this process. Raises UsageError if its layers are not consecutive."""
    numbers = sorted(map(layer_number, layer_names))
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise UsageError(
            f"attention in layers {numbers} alone: fasa supports only models with attention in "
            "every layer"
        )
    heads = vllm_config.model_config.get_total_num_kv_heads()
    count = heads // vllm_config.parallel_config.tensor_parallel_size
    return Part((numbers[0], len(numbers)), (tp_rank * count, count))


def whole_geometry(vllm_config, head_dim: int, scale: float, rotation: Rotation | None) -> Geometry:
    model = vllm_config.model_config
    text = model.hf_text_config
    rotation = rotation or Rotation(head_dim, "half")
    return Geometry(
        layers=text.num_hidden_layers,
        kv_heads=model.get_total_num_kv_heads(),
        query_heads=text.num_attention_heads,
        head_dim=head_dim,
        rotary_dims=rotation.dims,
        rotary_layout=rotation.layout,
        scale=scale,
    )


def map_of(vllm_config, config, geometry: Geometry) -> FcMap | None:
    """The map that the option names, or the model folder's, if the selection uses one. Raises
    UsageError for a map of another model."""
    if config.selection == "full":
        return None
    path = config.map or os.path.join(vllm_config.model_config.model, "fc_map.json")
    if not config.map and not os.path.exists(path):
        return None
    fc_map = FcMap.load(path)
    theirs = fc_map.fingerprint
    for field, ours in [("layers", geometry.layers), ("kv_heads", geometry.kv_heads),
                        ("query_heads", geometry.query_heads), ("key_dim", geometry.head_dim)]:
        if getattr(theirs, field) != ours:
            raise UsageError(
                f"{path}: the FC map has {field} = {getattr(theirs, field)}; the model has {ours}"
            )
    return fc_map
