"""Sequences of different lengths without padding: one after the other in one tensor (cu_seqlens, as
FlashAttention has them), or nested tensors of PyTorch with the layout torch.jagged.

Packed sequences are documents of one long sequence where positions inside each say the same as positions in the
whole: keys are packed as queries are, or nothing depends on positions. Elsewhere they are padded, with their lengths.

Where numbers are on a GPU nobody looks at them, so that nobody waits for them: only padding does, unless the caller
says how long the longest sequences are.
"""

import re
import typing

import torch
from torch import Tensor

from .._cephalo import _attend_packed
from . import _doors, _engine
from ._masks import _PLAIN, Mask, documents, lengths

_BY_POSITION = re.compile(r"causal|window|alibi")
_PREFIX = re.compile(r"causal\([1-9[]")
_OF_SCORES = ("keep", "drop", "bias")


class Layout(typing.NamedTuple):
    """Where sequences begin and end in packed queries and keys, int32 or int64 [sequences + 1], and how many tokens
    the longest have, where that was said. Keys are packed as queries are unless k is there."""
    q: Tensor
    k: Tensor | None = None
    longest_q: int | None = None
    longest_k: int | None = None

    def is_one(self):
        """Keys are packed by the same tensor."""
        return self.k is None or self.k is self.q

    def is_alike(self, q, k):
        """Keys are packed as queries are, as far as can be told without waiting."""
        return self.is_one() or (q.shape[0] == k.shape[0] and _are_read(self.q, self.k) and torch.equal(self.q, self.k))

    def of_keys(self):
        return (self.q, self.longest_q) if self.k is None else (self.k, self.longest_k)

    def check(self, q, k, v):
        _check_layout("cu_seqlens", self.q, q.shape[0], "q")
        _check_longest("max_seqlen", self.q, self.longest_q)
        if self.is_one() and q.shape[0] != k.shape[0]:  # positions would be shifted by what one has more
            raise ValueError(f"attend: keys are packed as queries are, but q has {q.shape[0]} tokens and k has "
                             f"{k.shape[0]}; pass cu_seqlens_k, or as many of both")
        if self.k is not None:
            _check_layout("cu_seqlens_k", self.k, k.shape[0], "k")
            _check_longest("max_seqlen_k", self.k, self.longest_k)
            if self.k.shape != self.q.shape:
                raise ValueError(f"attend: cu_seqlens has {len(self.q) - 1} sequences and cu_seqlens_k has "
                                 f"{len(self.k) - 1}; each sequence of queries looks at one of keys")
        if k.shape[0] != v.shape[0]:
            raise ValueError(f"attend: k has {k.shape[0]} tokens and v has {v.shape[0]}")


def _check_layout(name, cu_seqlens, total, of):
    if not isinstance(cu_seqlens, Tensor):
        raise TypeError(f"attend: {name} is of type {type(cu_seqlens).__name__}; a torch.Tensor is needed")
    if cu_seqlens.dtype not in (torch.int32, torch.int64) or cu_seqlens.dim() != 1 or len(cu_seqlens) == 0:
        raise ValueError(f"attend: {name} must be int32 or int64 [sequences + 1]; it is {cu_seqlens.dtype} "
                         f"{list(cu_seqlens.shape)}")
    if not _are_read(cu_seqlens, cu_seqlens):
        return
    if cu_seqlens[0] != 0 or (cu_seqlens.diff() < 0).any() or cu_seqlens[-1] > total:
        raise ValueError(f"attend: {name} must begin with 0, never fall and end with at most the {total} tokens of "
                         f"{of}; it is {cu_seqlens.tolist()}")


def _check_longest(name, cu_seqlens, longest):
    if longest is None or not _are_read(cu_seqlens, cu_seqlens):
        return
    found = int(cu_seqlens.diff().max()) if len(cu_seqlens) > 1 else 0
    if found > longest:
        raise ValueError(f"attend: {name} is {longest}; the longest sequence has {found} tokens")


def _ids(cu_seqlens, total):
    """-> int64 [total]: which sequence each token is of, -1 behind the last"""
    ids = torch.bucketize(torch.arange(total, device=cu_seqlens.device), cu_seqlens[1:], right=True)
    return ids.masked_fill(ids == cu_seqlens.shape[0] - 1, -1)


def _are_known(a, b):
    """Not while PyTorch records: numbers come later."""
    return _doors.is_plain(a, b, b, ())


def _are_read(a, b):
    """Nor on a GPU: one would wait for them."""
    return not (a.is_cuda or b.is_cuda) and _are_known(a, b)


def _refuse(mask):
    for part in ("lengths", "documents"):
        if any(role.startswith(part) for role in mask.roles) or f"{part}(" in mask.text:
            raise ValueError(f"attend: cu_seqlens say which tokens are of one sequence; {part} cannot be joined to "
                             "them")


def attend(compute, q, k, v, mask, layout, wants_weights):
    """compute(q, k, v, mask): context, lse and weights of rank 4
    q [q_total, num_heads, head_dim], k [kv_total, num_kv_heads, head_dim], v [kv_total, num_kv_heads, v_dim]
    -> context [q_total, num_heads, v_dim], lse [num_heads, q_total], weights [heads, rows, kv_total]"""
    if not q.dim() == k.dim() == v.dim() == 3:
        raise ValueError("attend: with cu_seqlens q, k and v are [total, num_heads, head_dim]; they are "
                         f"{list(q.shape)}, {list(k.shape)} and {list(v.shape)}")
    _refuse(mask)
    layout.check(q, k, v)
    alike = layout.is_alike(q, k)
    text = mask.rule_text()
    if _PREFIX.search(text) or "causal" in mask.roles or not alike and _BY_POSITION.search(text):
        _refuse_padding(mask, layout, wants_weights)
        return _padded(compute, q, k, v, mask, layout)
    mask = mask & _sequences(q, k, v, mask, layout, alike)
    context, lse, weights = compute(*(t.transpose(0, 1)[None] for t in (q, k, v)), mask)
    return context[0].transpose(0, 1), lse if lse is None else lse[0], weights if weights is None else weights[0]


def _sequences(q, k, v, mask, layout, alike):
    """Which tokens are of one sequence, as a mask. Kernels read cu_seqlens themselves where nobody records what is
    computed."""
    ends = (layout.q,) if alike else (layout.q, layout.k)
    if _are_there(q, *ends) and _doors.is_plain(q, k, v, (*mask.tensors, *ends)):
        if _doors.needs_gradient(q, k, v, mask.tensors):  # the caller may fill them anew before the backward pass
            ends = tuple(map(torch.clone, ends))
        return Mask("", ("packed", "+")[:len(ends)], ends)
    return documents(_ids(layout.q, q.shape[0]), None if alike else _ids(layout.k, k.shape[0]), in_order=True)


def _are_there(q, *ends):
    """On q's GPU, as kernels read them."""
    return q.is_cuda and all(t.device == q.device for t in ends)


def at_once(q, k, v, mask, layout, scale, softcap):
    """attend without lse and weights, where all is plain, on one GPU and not to be differentiated, in one call of the
    engine; else None, and nothing is checked."""
    ends = layout.q
    if torch.compiler.is_compiling() or not all(type(t) in _PLAIN for t in (q, k, v, ends)):
        return None
    if not _are_there(q, ends) or not q.dim() == k.dim() == v.dim() == 3 or any_nested((q, k, v)):
        return None
    if layout.k is not None and layout.k is not ends or mask.roles or _PREFIX.search(mask.text):
        return None
    if not _doors.is_plain(q, k, v, ()) or _doors.needs_gradient(q, k, v, ()):
        return None
    _refuse(mask)
    layout.check(q, k, v)
    return _attend_packed(q, k, v, _engine.mask_of(_engine.Rule(mask.text), ()), ends, ends, scale, softcap)


def _refuse_padding(mask, layout, wants_weights):
    why = "where positions in packed keys differ from those of packed queries, or a prefix is given"
    for role in mask.roles:
        if role in _OF_SCORES:
            raise ValueError(f"attend: {role}(t) has no place {why}: t is of all tokens at once")
    if wants_weights:
        raise ValueError(f"attend: weights cannot be returned {why}: call attend for one sequence")
    if None in (layout.longest_q, layout.of_keys()[1]):
        names = "max_seqlen" if layout.k is None else "max_seqlen and max_seqlen_k"
        if torch.compiler.is_compiling():
            raise NotImplementedError(f"attend: a compiled graph cannot have cu_seqlens {why}, unless {names} say how "
                                      "long the longest sequence is")
        if layout.q.is_cuda and torch.cuda.is_current_stream_capturing():
            raise ValueError(f"attend: while a graph is captured cu_seqlens cannot be read, {why}; pass {names}")


def _rows(cu_seqlens, longest, total):
    """-> int64 [sequences, longest]: which token is there, in short sequences any behind their end"""
    places = cu_seqlens[:-1, None] + torch.arange(longest, device=cu_seqlens.device)
    return places.clamp(0, max(total - 1, 0))


def _unpadded(padded, cu_seqlens, total, nothing):
    """[sequences, heads, longest, ...] -> [total, heads, ...]; tokens of no sequence get nothing"""
    which = _ids(cu_seqlens, total)
    is_real = (which >= 0).reshape(-1, *[1] * (padded.dim() - 2))
    which = which.clamp(min=0)
    place = torch.arange(total, device=which.device) - cu_seqlens[which]
    if padded.shape[2] == 0:  # there is nobody to take from
        padded = torch.nn.functional.pad(padded, (0, 0) * (padded.dim() - 3) + (0, 1), value=nothing)
    return padded[which, :, place.clamp(0, padded.shape[2] - 1)].masked_fill(~is_real, nothing)


def _padded(compute, q, k, v, mask, layout):
    """As attend, by a padded batch."""
    cu_k, longest_k = layout.of_keys()
    cu_q, cu_k = layout.q.to(q.device), cu_k.to(q.device)
    q_lengths, kv_lengths = cu_q.diff(), cu_k.diff()
    if len(q_lengths) == 0:
        raise ValueError("attend: cu_seqlens has no sequence")
    longest_q = int(q_lengths.max()) if layout.longest_q is None else layout.longest_q
    longest_k = int(kv_lengths.max()) if longest_k is None else longest_k
    q_rows, kv_rows = _rows(cu_q, longest_q, q.shape[0]), _rows(cu_k, longest_k, k.shape[0])
    context, lse, _ = compute(q[q_rows].transpose(1, 2), k[kv_rows].transpose(1, 2), v[kv_rows].transpose(1, 2),
                               mask & lengths(kv_lengths, q_lengths))
    context = _unpadded(context, cu_q, q.shape[0], 0.0)
    return context, None if lse is None else _unpadded(lse, cu_q, q.shape[0], -torch.inf).t(), None


def any_nested(tensors):
    with torch._C.DisableTorchFunctionSubclass():  # other subclasses may answer with anything
        return any(isinstance(t, Tensor) and t.is_nested for t in tensors)


def _jagged(name, tensor):
    """[batch, num_heads, tokens of each, dim] -> values [total, num_heads, dim], offsets"""
    if not tensor.is_nested:
        raise TypeError(f"attend: q, k and v must be nested tensors of layout torch.jagged together; {name} is not")
    if tensor.dim() != 4 or tensor._ragged_idx != 2:
        raise ValueError(f"attend: {name} must be [batch, num_heads, tokens, dim] with tokens jagged; transpose(1, 2) "
                         "brings heads forward")
    if tensor.lengths() is not None:
        raise ValueError(f"attend: {name} has holes between its sequences; contiguous() closes them")
    whole = tensor.transpose(1, 2)
    return whole.values(), whole.offsets()


def attend_nested(compute, q, k, v, mask, wants_weights):
    """-> context [batch, num_heads, tokens of each, v_dim], lse [batch, num_heads, tokens of each], None"""
    if wants_weights:
        raise ValueError("attend: weights of nested tensors are not returned; pass their values() and "
                         "cu_seqlens=offsets()")
    (q, offsets), (k, k_offsets), (v, v_offsets) = (_jagged(*pair) for pair in (("q", q), ("k", k), ("v", v)))
    if k_offsets.shape != v_offsets.shape or _are_read(k_offsets, v_offsets) and not torch.equal(k_offsets, v_offsets):
        raise ValueError("attend: k and v must have sequences of the same lengths")
    if offsets.shape != k_offsets.shape:
        raise ValueError(f"attend: q has {len(offsets) - 1} sequences, k and v have {len(k_offsets) - 1}")
    context, lse, _ = attend(compute, q, k, v, mask, Layout(offsets, k_offsets), False)

    def nested(values):
        return torch.nested.nested_tensor_from_jagged(values.contiguous(), offsets).transpose(1, 2)

    return nested(context), None if lse is None else nested(lse.t()), None
