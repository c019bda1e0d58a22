"""Sequences of different lengths without padding: one after the other in one tensor (cu_seqlens, as
FlashAttention has them), or nested tensors of PyTorch with the layout torch.jagged.

Packed sequences are documents of one long sequence where positions inside each say the same as positions in the
whole: keys are packed as queries are, or nothing depends on positions. Elsewhere they are padded, with their lengths.
"""

import re

import torch
from torch import Tensor

from . import _doors
from ._masks import documents, lengths

_BY_POSITION = re.compile(r"causal|window|alibi")
_PREFIX = re.compile(r"causal\([1-9[]")
_OF_SCORES = ("keep", "drop", "bias")


def _check_layout(name, cu_seqlens, total, of):
    if not isinstance(cu_seqlens, Tensor):
        raise TypeError(f"attend: {name} is of type {type(cu_seqlens).__name__}; a torch.Tensor is needed")
    if cu_seqlens.dtype not in (torch.int32, torch.int64) or cu_seqlens.dim() != 1 or len(cu_seqlens) == 0:
        raise ValueError(f"attend: {name} must be int32 or int64 [sequences + 1]; it is {cu_seqlens.dtype} "
                         f"{list(cu_seqlens.shape)}")
    if not _are_known(cu_seqlens, cu_seqlens):
        return
    if cu_seqlens[0] != 0 or (cu_seqlens.diff() < 0).any() or cu_seqlens[-1] > total:
        raise ValueError(f"attend: {name} must begin with 0, never fall and end with at most the {total} tokens of "
                         f"{of}; it is {cu_seqlens.tolist()}")


def _ids(cu_seqlens, total):
    """-> int64 [total]: which sequence each token is of, -1 behind the last"""
    ids = torch.bucketize(torch.arange(total, device=cu_seqlens.device), cu_seqlens[1:], right=True)
    return torch.where(ids < cu_seqlens.shape[0] - 1, ids, -1)


def _are_known(a, b):
    """Not while PyTorch records: numbers come later."""
    return _doors.is_plain(a, b, b, ())


def _lie_alike(cu_seqlens, cu_seqlens_k):
    if cu_seqlens_k is None or cu_seqlens_k is cu_seqlens:
        return True
    return _are_known(cu_seqlens, cu_seqlens_k) and torch.equal(cu_seqlens, cu_seqlens_k)


def _refuse(mask):
    for part in ("lengths", "documents"):
        if part in mask.roles or f"{part}(" in mask.text:
            raise ValueError(f"attend: cu_seqlens say which tokens are of one sequence; {part} cannot be joined to "
                             "them")


def attend(compute, q, k, v, mask, cu_seqlens, cu_seqlens_k, wants_weights):
    """compute(q, k, v, mask): context, lse and weights of rank 4
    q [q_total, num_heads, head_dim], k [kv_total, num_kv_heads, head_dim], v [kv_total, num_kv_heads, v_dim]
    -> context [q_total, num_heads, v_dim], lse [num_heads, q_total], weights [heads, rows, kv_total]"""
    if not q.dim() == k.dim() == v.dim() == 3:
        raise ValueError("attend: with cu_seqlens q, k and v are [total, num_heads, head_dim]; they are "
                         f"{list(q.shape)}, {list(k.shape)} and {list(v.shape)}")
    _refuse(mask)
    _check_layout("cu_seqlens", cu_seqlens, q.shape[0], "q")
    if cu_seqlens_k is not None:
        _check_layout("cu_seqlens_k", cu_seqlens_k, k.shape[0], "k")
    alike = _lie_alike(cu_seqlens, cu_seqlens_k)
    text = mask.rule_text()
    if _PREFIX.search(text) or "causal" in mask.roles or not alike and _BY_POSITION.search(text):
        _refuse_padding(mask, wants_weights)
        return _padded(compute, q, k, v, mask, cu_seqlens, cu_seqlens if alike else cu_seqlens_k)
    ids = _ids(cu_seqlens, q.shape[0])
    mask = mask & (documents(ids) if alike else documents(ids, _ids(cu_seqlens_k, k.shape[0])))
    context, lse, weights = compute(*(t.transpose(0, 1)[None] for t in (q, k, v)), mask)
    return context[0].transpose(0, 1), lse if lse is None else lse[0], weights if weights is None else weights[0]


def _refuse_padding(mask, wants_weights):
    why = "where positions in packed keys differ from those of packed queries, or a prefix is given"
    for role in mask.roles:
        if role in _OF_SCORES:
            raise ValueError(f"attend: {role}(t) has no place {why}: t is of all tokens at once")
    if wants_weights:
        raise ValueError(f"attend: weights cannot be returned {why}: call attend for one sequence")
    if torch.compiler.is_compiling():
        raise NotImplementedError(f"attend: a compiled graph cannot have cu_seqlens {why}")


def _rows(cu_seqlens, longest):
    """-> int64 [sequences, longest]: which token is there, in short sequences any behind their end"""
    places = cu_seqlens[:-1, None] + torch.arange(longest, device=cu_seqlens.device)
    return places.clamp(max=max(int(cu_seqlens[-1]) - 1, 0))


def _padded(compute, q, k, v, mask, cu_seqlens, cu_seqlens_k):
    """As attend, by a padded batch."""
    q_lengths, kv_lengths = cu_seqlens.diff(), cu_seqlens_k.diff()
    if len(q_lengths) == 0:
        raise ValueError("attend: cu_seqlens has no sequence")
    q_rows, kv_rows = (_rows(cu, int(own.max())) for cu, own in ((cu_seqlens, q_lengths),
                                                                 (cu_seqlens_k, kv_lengths)))
    context, lse, _ = compute(q[q_rows].transpose(1, 2), k[kv_rows].transpose(1, 2), v[kv_rows].transpose(1, 2),
                               mask & lengths(kv_lengths, q_lengths))
    which = _ids(cu_seqlens, int(cu_seqlens[-1]))
    place = torch.arange(len(which), device=which.device) - cu_seqlens[which]
    behind = q.shape[0] - len(which)  # tokens of no sequence see nothing
    context = torch.nn.functional.pad(context[which, :, place], (0, 0, 0, 0, 0, behind))
    if lse is not None:
        lse = torch.nn.functional.pad(lse[which, :, place], (0, 0, 0, behind), value=-torch.inf).t()
    return context, lse, None


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
    if _are_known(k_offsets, v_offsets) and not torch.equal(k_offsets, v_offsets):
        raise ValueError("attend: k and v must have sequences of the same lengths")
    context, lse, _ = attend(compute, q, k, v, mask, offsets, k_offsets, False)

    def nested(values):
        return torch.nested.nested_tensor_from_jagged(values.contiguous(), offsets).transpose(1, 2)

    return nested(context), None if lse is None else nested(lse.t()), None
