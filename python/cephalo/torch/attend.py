"""cephalo.attend for PyTorch: trainable, with every mask, and open to being looked at."""

import typing

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from .. import AttendResult
from . import _doors, _engine, _ops, _packed, _weights
from ._masks import _PLAIN, mask_from
from .sdpa import _autocasts, _lowered


def _check(q, k, v):
    on_meta = all(isinstance(t, Tensor) and t.is_meta for t in (q, k, v))  # where only shapes are computed
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"attend: {name} is of type {type(tensor).__name__}; a torch.Tensor is needed")
        if not (tensor.is_cpu or tensor.is_cuda or on_meta):
            raise TypeError(f"attend: {name} is on device {tensor.device}; cephalo computes on the CPU and on GPUs of "
                            "NVIDIA: move it there first")
        if tensor.is_nested and tensor.layout != torch.jagged:
            raise TypeError(f"attend: {name} is a nested tensor of layout {tensor.layout}; torch.jagged is "
                            "understood")


def _check_ranks(q, k, v):
    if not (2 <= q.dim() <= 4 and q.dim() == k.dim() == v.dim()):
        raise ValueError(f"attend: q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} must have the same "
                         "rank, 4, 3 (no batch) or 2 (one head)")


def _is_plain(q, k, v):
    """What the engine takes as it is, or refuses itself."""
    if type(q) not in _PLAIN or type(k) not in _PLAIN or type(v) not in _PLAIN:
        return False
    if q.is_nested or k.is_nested or v.is_nested:
        return False
    return (q.is_cuda or q.is_cpu) and q.dim() == k.dim() == v.dim() == 4


class _Call(typing.NamedTuple):
    """What is asked for, whatever the shapes."""
    scale: float | None
    softcap: float | None
    dropout: float
    return_lse: bool
    return_weights: bool
    heads: tuple
    rows: tuple

    def compute(self, q, k, v, mask):
        """All of rank 4 -> context, lse, weights"""
        rule = _engine.Rule(mask.rule_text(), self.scale, self.softcap, self.dropout)
        if q.is_meta:
            context, lse = _ops.attend(q, k, v, rule, None, mask.tensors)
        elif not (self.return_lse or self.return_weights):
            return _doors.context(q, k, v, rule, mask.tensors), None, None
        else:
            context, lse = _doors.context_and_lse(q, k, v, rule, mask.tensors)
        weights = None
        if self.return_weights:
            weights = _weights.weights(q, k, lse, mask, self.scale, self.softcap, self.heads, self.rows)
        return context, lse if self.return_lse else None, weights


def _without_axes(tensor, added):
    """Without the axes of 1 that were put in front."""
    return tensor if tensor is None or added == 0 else tensor[(0,) * added]


def attend(q: Tensor, k: Tensor, v: Tensor, mask=None, scale: float | None = None, softcap: float | None = None,
           dropout: float = 0.0, return_lse: bool = False, return_weights: bool = False, heads=(), rows=(), *,
           cu_seqlens: Tensor | None = None, cu_seqlens_k: Tensor | None = None, max_seqlen: int | None = None,
           max_seqlen_k: int | None = None):
    """softmax(scale * q k^T) v, with whatever the arguments ask for in between.

    q: [batch, num_heads, q_tokens, head_dim]
    k: [batch, num_kv_heads, kv_tokens, head_dim]
    v: [batch, num_kv_heads, kv_tokens, v_dim]
    or all of rank 3 (no batch) or 2 (one head). Fewer kv heads are shared by groups of heads.
    mask: parts of cephalo.torch joined by &, causal() & keep(t) ...; a bias in it has a gradient
    dropout: seeded by PyTorch's generator
    -> context [batch, num_heads, q_tokens, v_dim]; if you ask for more, the named tuple (context, lse, weights,
    scores), with None for what you did not ask for

    return_lse: [batch, num_heads, q_tokens], differentiable as context is.
    return_weights: [batch, heads, rows, kv_tokens], before dropout; heads, rows: the ones you want, empty for all.
        Nothing larger than that is stored, and it has no gradient.
    cu_seqlens: q, k and v are packed, [total, num_heads, head_dim], and sequence n is tokens cu_seqlens[n] ...
        cu_seqlens[n + 1] - 1; cu_seqlens_k: where keys lie otherwise. lse is then [num_heads, total].
    max_seqlen, max_seqlen_k: how many tokens the longest sequence has at most. Needed where keys lie otherwise and the
        mask depends on positions, or there is a prefix: by a compiled graph, by one that is being captured, and on a
        GPU, unless the call is to wait for the lengths.
    On a GPU keep, drop and bias are there too; so may be lengths, prefixes, documents, slopes and cu_seqlens, which
    are then read by kernels: nobody waits for them, and nobody checks them. On the CPU they are read at once.
    Nested tensors of layout torch.jagged, [batch, num_heads, tokens, dim], give nested tensors.
    """
    if _autocasts():
        q, k, v = map(_lowered, (q, k, v))
    tensors = (q, k, v) if cu_seqlens is None else (q, k, v, cu_seqlens)
    is_special = has_torch_function(tensors)
    asks_for_more = return_lse or return_weights or heads or rows
    if not (is_special or asks_for_more) and cu_seqlens is cu_seqlens_k is max_seqlen is max_seqlen_k is None:
        if _is_plain(q, k, v):  # the usual call, which should not wait for what others need
            mask = mask_from(mask)
            rule = _engine.Rule(mask.rule_text(), scale, softcap, dropout)
            return _doors.context(q, k, v, rule, mask.tensors)
    elif cu_seqlens is not None and not (is_special or asks_for_more or dropout):
        layout = _packed.Layout(cu_seqlens, cu_seqlens_k, max_seqlen, max_seqlen_k)
        found = _packed.at_once(q, k, v, mask_from(mask), layout, scale, softcap)
        if found is not None:
            return found
    # torch.compile sees nested tensors as plain ones here.
    is_nested = (is_special or torch.compiler.is_compiling()) and _packed.any_nested(tensors)
    if is_special and not is_nested:
        return handle_torch_function(attend, tensors, q, k, v, mask, scale, softcap, dropout, return_lse,
                                     return_weights, heads, rows, cu_seqlens=cu_seqlens,
                                     cu_seqlens_k=cu_seqlens_k, max_seqlen=max_seqlen, max_seqlen_k=max_seqlen_k)
    _check(q, k, v)
    mask = mask_from(mask)
    if not return_weights and (heads or rows):
        raise ValueError("attend: heads and rows choose weights; pass return_weights=True")
    if cu_seqlens is None and any(t is not None for t in (cu_seqlens_k, max_seqlen, max_seqlen_k)):
        raise ValueError("attend: cu_seqlens_k, max_seqlen and max_seqlen_k need cu_seqlens")

    call = _Call(scale, softcap, dropout, return_lse, return_weights, heads, rows)
    if is_nested:
        if cu_seqlens is not None:
            raise ValueError("attend: nested tensors have offsets of their own; cu_seqlens are for packed ones")
        found = _packed.attend_nested(call.compute, q, k, v, mask, return_weights)
    elif cu_seqlens is not None:
        layout = _packed.Layout(cu_seqlens, cu_seqlens_k, max_seqlen, max_seqlen_k)
        found = _packed.attend(call.compute, q, k, v, mask, layout, return_weights)
    else:
        _check_ranks(q, k, v)
        added = 4 - q.dim()
        found = call.compute(*(t[(None,) * added] if added else t for t in (q, k, v)), mask)
        found = [_without_axes(t, added) for t in found]
    return AttendResult(*found, None) if return_lse or return_weights else found[0]
