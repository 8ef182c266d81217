"""Metadata that a step's layers share: which rows of the batch decode and which prefill."""
from __future__ import annotations

import dataclasses

import numpy as np
import torch
from vllm.config import get_layers_from_vllm_config
from vllm.model_executor.layers.attention import Attention
from vllm.v1.attention.backend import AttentionCGSupport, AttentionMetadataBuilder

from .. import UsageError
from ._geometry import layer_number
from ._settings import Settings
from ._store import on_gpu, store_for, stream_of


Array = np.ndarray | torch.Tensor  # in host or GPU memory


@dataclasses.dataclass
class Rows:
    """Some sequences of the batch, and the positions of their tokens in its tensors."""

    table: Array    # int32 [sequences, columns]
    lengths: Array  # int32, including the step's tokens
    queries: Array  # int32, each sequence's tokens in this step
    first: int      # index of the first token; tokens are consecutive if `tokens` is None
    count: int
    tokens: torch.Tensor | None  # int64 [count]

    @classmethod
    def of(cls, chosen: np.ndarray, starts: np.ndarray, lengths: torch.Tensor,
           table: torch.Tensor) -> Rows | None:
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return None
        queries = (starts[rows + 1] - starts[rows]).astype(np.int32)
        first, count = int(starts[rows[0]]), int(queries.sum())
        tokens = None
        if rows[-1] - rows[0] + 1 != len(rows):
            tokens = torch.from_numpy(
                np.concatenate([np.arange(starts[row], starts[row + 1]) for row in rows])
            ).to(table.device, torch.int64)
        # Copies, because the runner overwrites its tensors in the next step.
        if not on_gpu(table):
            return cls(np.ascontiguousarray(table.numpy()[rows]),
                       np.ascontiguousarray(lengths.numpy()[rows]), queries, first, count, tokens)
        index = torch.from_numpy(rows).to(table.device)
        return cls(table.index_select(0, index), lengths.index_select(0, index),
                   torch.from_numpy(queries).to(table.device), first, count, tokens)

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.tokens is None:
            return tensor[self.first:self.first + self.count]
        return tensor.index_select(0, self.tokens)


@dataclasses.dataclass
class FasaMetadata:
    decode: Rows | None
    prefill: Rows | None

    @classmethod
    def of(cls, batch) -> FasaMetadata:
        """Made from vLLM's metadata. Rows without tokens are padding."""
        count = batch.num_reqs
        starts = batch.query_start_loc_cpu[:count + 1].numpy()
        lengths = batch.seq_lens[:count]
        table = batch.block_table_tensor[:count]
        queries = np.diff(starts)
        decodes = queries == 1
        if batch.is_prefilling is not None:
            decodes &= ~batch.is_prefilling[:count].cpu().numpy()
        return cls(Rows.of(decodes, starts, lengths, table),
                   Rows.of((queries > 0) & ~decodes, starts, lengths, table))

    def arrays(self) -> list[Array]:
        """All arrays that the step's calls take."""
        found = [rows for rows in (self.decode, self.prefill) if rows is not None]
        return [array for rows in found for array in (rows.table, rows.lengths, rows.queries)]


class FasaMetadataBuilder(AttentionMetadataBuilder[FasaMetadata]):
    """Opens the store, because the number of blocks is known when vLLM creates builders."""

    _cudagraph_support = AttentionCGSupport.NEVER  # the host plans each step
    reorder_batch_threshold: int = 1  # decodes come first

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        settings = Settings.of(vllm_config)
        layers = get_layers_from_vllm_config(vllm_config, Attention, layer_names)
        scales = {layer.impl.scale for layer in layers.values()}
        if len(scales) != 1:
            raise UsageError(f"layers that scale by {sorted(scales)}: fasa supports one scale")
        if kv_cache_spec.head_size_v != kv_cache_spec.head_size:
            raise UsageError("fasa.vllm supports only keys and values of equal size")
        store = store_for(vllm_config, settings, layer_names, kv_cache_spec.head_size, scales.pop())
        blocks = vllm_config.cache_config.num_gpu_blocks
        if not blocks:
            raise UsageError("the number of blocks is unknown; use fasa's worker (--worker-cls)")
        store.open(blocks)
        self._store = store
        for name, layer in layers.items():
            layer.impl.bind(store, layer_number(name) - store.part.layers[0])

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False) -> FasaMetadata:
        batch = common_attn_metadata
        made = FasaMetadata.of(batch)
        if on_gpu(batch.block_table_tensor):
            # The only wait of a step: fasa plans fetches on the host. The lengths that vLLM has on
            # the host are only bounds, and its host table may already be the next step's.
            self._store.paged.read_tables([batch.slot_mapping, *made.arrays()],
                                          stream=stream_of(batch.block_table_tensor))
        return made
