"""A layer's attention: vLLM first has the batch's keys and values stored, then requests the
outputs."""
from __future__ import annotations

import torch
from vllm.config import get_current_vllm_config
from vllm.v1.attention.backend import AttentionImpl, AttentionType

from .. import UsageError
from ._settings import refuse_layer
from ._store import Store, lie_of, on_gpu, stream_of


class FasaImpl(AttentionImpl):
    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None,
                 sliding_window=None, kv_cache_dtype="auto", logits_soft_cap=None,
                 attn_type=AttentionType.DECODER, kv_sharing_target_layer_name=None, **extra):
        model_dtype = str(get_current_vllm_config().model_config.dtype).removeprefix("torch.")
        refuse_layer(
            alibi_slopes=alibi_slopes, sliding_window=sliding_window,
            logits_soft_cap=logits_soft_cap, attn_type=attn_type,
            kv_sharing=kv_sharing_target_layer_name, extra=extra, kv_cache_dtype=kv_cache_dtype,
            model_dtype=model_dtype,
        )
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.sliding_window = None
        self._store: Store | None = None
        self._layer = -1

    def bind(self, store: Store, layer: int) -> None:
        self._store, self._layer = store, layer

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping) -> None:
        """Stores all tokens of the batch before attention: a sequence may read a block that another
        sequence of the step writes."""
        count = slot_mapping.shape[0]
        slots = slot_mapping if on_gpu(slot_mapping) else slot_mapping.numpy()
        self._store.paged._append_at(self._layer, lie_of(key[:count]), lie_of(value[:count]), slots,
                                     stream_of(key))

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output,
                output_scale=None, output_block_scale=None) -> torch.Tensor:
        if output_scale is not None or output_block_scale is not None:
            raise UsageError("fasa does not support quantised attention outputs; disable that "
                             "fusion")
        if attn_metadata is None:  # vLLM's memory profiling run
            return output
        paged, stream = self._store.paged, stream_of(query)
        rows = attn_metadata.decode
        if rows is not None:
            q, out = rows.take(query), rows.take(output)
            paged._attend_at(self._layer, lie_of(q), rows.table, rows.lengths, lie_of(out),
                             stream)
            if rows.tokens is not None:
                output[rows.tokens] = out
        rows = attn_metadata.prefill
        if rows is not None:
            q, out = rows.take(query), rows.take(output)
            paged._prefill_at(self._layer, lie_of(q), rows.table, rows.lengths, rows.queries,
                              lie_of(out), stream)
            if rows.tokens is not None:
                output[rows.tokens] = out
        return output
