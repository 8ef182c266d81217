"""The attention and mask functions that transformers calls by the name "fasa"."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, flash_attention_mask, sdpa_mask

from .. import UsageError
from ._handle import Handle

_observers: list = []  # called with (module, query, key, scaling, softcap) of every stateless call


def fasa_mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0,
              mask_function=causal_mask_function, attention_mask=None, **kwargs):
    """None or a 2-D padding mask for plain causal attention, else sdpa's 4-D mask.

    A static cache returns keys padded to its full length, which need a mask too.
    """
    whole = int(q_offset) + q_length == kv_length + int(kv_offset)
    arguments = dict(batch_size=batch_size, q_length=q_length, kv_length=kv_length,
                     q_offset=q_offset, kv_offset=kv_offset, mask_function=mask_function,
                     attention_mask=attention_mask)
    kwargs.pop("allow_is_causal_skip", None)
    if mask_function is causal_mask_function and whole:
        return flash_attention_mask(**arguments, **kwargs)
    return sdpa_mask(**arguments, allow_is_causal_skip=False, **kwargs)


def fasa_attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None,
                   is_causal=None, softcap=None, s_aux=None, position_bias=None, **kwargs):
    """The runtime's attention for keys that it holds, sdpa's for others."""
    if softcap is not None and s_aux is not None:
        raise _unsupported("softcap together with s_aux")
    if type(key) is Handle:
        if (dropout or position_bias is not None or is_causal is False
                or not getattr(module, "is_causal", True)):
            _refuse(dropout, position_bias)
        layer = key.layer()
        if layer.pending is None:
            layer.refuse()
        (key, value), layer.pending = layer.pending, None
        return layer.session.step(layer.index, module, query, key, value, attention_mask, scaling,
                                  s_aux, softcap), None
    if position_bias is not None:
        kwargs["position_bias"] = position_bias
    for observe in _observers:
        observe(module, query, key, scaling, softcap)
    mask = _sdpa_mask_of(module, query, key, attention_mask, is_causal)
    if s_aux is not None:
        return _with_sinks(module, query, key, value, mask, scaling, s_aux), None
    if softcap is not None:
        if dropout or position_bias is not None:
            raise _unsupported("softcap with dropout or position_bias")
        causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
        return _capped(query, key, value, mask, scaling, softcap, causal), None
    return sdpa_attention_forward(module, query, key, value, mask, dropout=dropout,
                                  scaling=scaling, is_causal=is_causal, **kwargs)


def _unsupported(name):
    return UsageError(f'attn_implementation="fasa" does not support {name}; use '
                      'attn_implementation="eager"')


def _refuse(dropout, position_bias) -> None:
    if position_bias is not None:
        raise _unsupported("position_bias")
    if dropout:
        raise UsageError(f"dropout = {dropout}: a fasa cache supports inference only; call "
                         "model.eval()")
    raise UsageError("a fasa cache supports causal attention only; use a DynamicCache")


def _sdpa_mask_of(module, query, key, mask, is_causal):
    """A mask for sdpa, which takes 4-D masks only, and without one aligns queries with the first
    tokens instead of the last."""
    if mask is not None and mask.ndim == 4:
        return mask
    new, total = query.shape[2], key.shape[2]
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    if mask is None and (new == total or new == 1 or not causal):
        return None
    if mask is not None and mask.shape[-1] != total:
        raise UsageError(f"attention_mask has {mask.shape[-1]} tokens, but there are {total} keys")
    return sdpa_mask(query.shape[0], new, total, q_offset=total - new, attention_mask=mask,
                     allow_is_causal_skip=False, device=query.device)


class observing:
    """Context manager: inside, `observe(module, query, key, scaling, softcap)` is called for every
    attention without a fasa cache."""

    def __init__(self, observe):
        self._observe = observe

    def __enter__(self):
        _observers.append(self._observe)

    def __exit__(self, *_):
        _observers.remove(self._observe)


def _with_sinks(module, query, key, value, mask, scaling, sinks) -> torch.Tensor:
    """sdpa with one more logit in each head's softmax. Prepends a key without a value that only an
    extra dimension of the queries sees. If sdpa applies the causal mask, query i sees keys up to i,
    so a dummy first query keeps them aligned."""
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    causal = mask is None and query.shape[2] > 1
    dim, more = value.shape[-1], 8  # keeps the alignment of the dimensions
    queries = F.pad(query, (0, more, int(causal), 0))
    queries[..., query.shape[-1]] = (sinks / scaling).to(query.dtype)[None, :, None]
    keys = F.pad(key, (0, more, 1, 0))
    keys[:, :, 0, key.shape[-1]] = 1
    values = F.pad(value, (0, more, 1, 0))
    if mask is not None:
        mask = F.pad(mask, (1, 0), value=True if mask.dtype == torch.bool else 0.0)
    out = sdpa_attention_forward(module, queries, keys, values, mask, scaling=scaling)[0]
    return out[:, int(causal):, :, :dim]


def _capped(query, key, value, mask, scaling, softcap, causal) -> torch.Tensor:
    """Attention with a soft cap, which sdpa does not support. Holds all scores in memory at once.
    Returns [batch, tokens, query_heads, value_dim]."""
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    group = query.shape[1] // key.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1) for x in (key, value))
    scores = softcap * torch.tanh(query @ keys.mT * scaling / softcap)
    new, total = scores.shape[-2:]
    if mask is None and causal and new > 1:
        mask = torch.ones(new, total, dtype=torch.bool, device=query.device).tril(total - new)
    if mask is not None:
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        else:
            scores = scores + mask
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    return (weights @ values).transpose(1, 2).contiguous()


def exact(module, query, key, value, mask, scaling, sinks=None, softcap=None) -> torch.Tensor:
    """sdpa with a 4-D mask; returns [batch, tokens, query_heads, value_dim]."""
    if softcap is not None:
        return _capped(query, key, value, mask, scaling, softcap, False)
    if sinks is not None:
        return _with_sinks(module, query, key, value, mask, scaling, sinks)
    return sdpa_attention_forward(module, query, key, value, mask, scaling=scaling)[0]
