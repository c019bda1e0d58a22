"""cephalo's functions on PyTorch tensors, and the words in which PyTorch's graphs describe a call.

q: [batch, num_heads, q_tokens, head_dim]
k: [batch, num_kv_heads, kv_tokens, head_dim]
v: [batch, num_kv_heads, kv_tokens, v_dim]
tensors: those of the mask, with batch in front: keep, drop, bias [batch|1, num_heads|1, q_tokens|1,
    kv_tokens|1], lengths and a prefix [batch|1], documents [batch|1, tokens], slopes [1, num_heads]
"""

import functools
import typing

import torch

from .. import (
    Mask,
    alibi,
    attend,
    attend_backward,
    attend_second,
    attend_tangent,
    bias,
    causal,
    documents,
    drop,
    keep,
    lengths,
)
from .._cephalo import _packed_sequences, _use_openmp

# After a Linear PyTorch's workers keep their cores busy for a while, in wait for more: they get it from us.
_use_openmp()
# Where they cannot be had, a call with fewer multiplications than this is over sooner on the core it has than
# when it asks for another.
_ALONE_BELOW = 1 << 22
_AGAIN = "+"  # the tensor is one more argument of the part before


def _of_scores(function):
    return lambda device, t: function(t)


def _of_numbers(function, to_host=torch.Tensor.tolist):
    """A part that kernels of a GPU read where it is, if it is there; else the host reads it, and waits for it."""
    def part(device, *of):
        is_there = device is not None and device.type == "cuda" and all(t.device == device for t in of)
        return function(*(of if is_there else map(to_host, of)))
    return part


def _packed(device, q_ends, kv_ends=None):
    """Ends on the GPU of q, [sequences + 1]"""
    return _packed_sequences(q_ends, q_ends if kv_ends is None else kv_ends)


def _alibi(slopes):
    """[1, num_heads], a tensor or lists"""
    return alibi(slopes[0].float() if isinstance(slopes, torch.Tensor) else slopes[0])


# function(device, *tensors) -> a part; device: that of q
_ROLES = {
    "keep": _of_scores(keep),
    "drop": _of_scores(drop),
    "bias": _of_scores(bias),
    "documents": _of_numbers(documents, torch.Tensor.cpu),
    "documents in order": _of_numbers(functools.partial(documents, in_order=True), torch.Tensor.cpu),
    "packed": _packed,
    "lengths": _of_numbers(lengths),
    "causal": _of_numbers(causal),
    "alibi": _of_numbers(_alibi),
}


class Rule(typing.NamedTuple):
    """Everything about a call but its tensors. Plain values: a graph holds them as constants."""
    mask: str  # "causal() | keep, bias": as Mask.parse reads it, then what the tensors are
    scale: float | None = None
    softcap: float | None = None
    dropout: float = 0.0

    def roles(self):
        """What the mask's tensors are, in their order."""
        return _parsed(self.mask)[1]

    def lets_batch_grow(self, dims):
        """Whether what is mapped may join batch. dims: where the mask's tensors are mapped. A list in the text
        has an entry for each sequence; slopes are the same in all of them."""
        mapped_slopes = any(role == "alibi" and dim is not None for role, dim in zip(self.roles(), dims))
        return not mapped_slopes and "lengths(" not in self.mask and "causal([" not in self.mask


@functools.lru_cache(maxsize=256)
def _parsed(text):
    """-> the mask of positions or None, roles, (function, its tensors) for each part with tensors"""
    positions, _, roles = text.partition(" | ")
    roles = roles.split(", ") if roles else []
    begins = [n for n, role in enumerate(roles) if role != _AGAIN]
    parts = [(_ROLES[roles[begin]], slice(begin, end))
             for begin, end in zip(begins, [*begins[1:], len(roles)])]
    return Mask.parse(positions) if positions else None, roles, parts


def mask_of(rule, tensors, q=None):
    """q: whose device kernels can read; None where nothing is computed"""
    if not rule.mask:
        return None
    mask, _, parts = _parsed(rule.mask)
    if not parts:
        return mask
    device = None if q is None else q.device
    for function, which in parts:
        part = function(device, *tensors[which])
        mask = part if mask is None else mask & part
    return mask


def threads(q, k):
    """One where PyTorch has one or the work is little, else as many as cephalo and PyTorch have."""
    if q.is_cuda:
        return None
    little = q.numel() * k.shape[-2] < _ALONE_BELOW
    return 1 if little or torch.get_num_threads() == 1 else None


def context_like(q, v):
    """Memory for context laid out like q, so that heads split by a view can be merged by one. On a GPU also where q is
    dense: PyTorch makes such a tensor in less time than it takes one over."""
    if q.shape[-1] != v.shape[-1] or q.is_contiguous() and not q.is_cuda:
        return None
    return torch.empty_like(q)


def _number(seed):
    return 0 if isinstance(seed, torch.Tensor) else seed


def options(rule, seed, q, k):
    """seed: a number, or on a GPU a tensor int64 []"""
    found = {"scale": rule.scale, "softcap": rule.softcap, "threads": threads(q, k)}
    if rule.dropout:
        found |= {"dropout": rule.dropout, "seed": _number(seed)}
        if isinstance(seed, torch.Tensor):
            found["device_seed"] = seed
    return found


def _attend(q, k, v, rule, seed, tensors, with_lse):
    mask, out = mask_of(rule, tensors, q), context_like(q, v)
    if isinstance(seed, torch.Tensor):  # one that kernels read when they run
        return attend(q, k, v, mask, *rule[1:], 0, with_lse, out=out, device_seed=seed)
    _, scale, softcap, dropout = rule
    if out is None:  # arguments without names are found sooner
        return attend(q, k, v, mask, scale, softcap, dropout, seed, with_lse, False, None, "auto", None, threads(q, k))
    return attend(q, k, v, mask, scale, softcap, dropout, seed, with_lse, False, None, "auto", None, threads(q, k),
                  out=out)


def context(q, k, v, rule, seed, tensors):
    """-> context [batch, num_heads, q_tokens, v_dim] alone"""
    return _attend(q, k, v, rule, seed, tensors, False)


def forward(q, k, v, rule, seed, tensors):
    """-> context [batch, num_heads, q_tokens, v_dim], lse [batch, num_heads, q_tokens]"""
    return _attend(q, k, v, rule, seed, tensors, True)[:2]


def _of_tensors(rule, of_biases, count):
    """of_biases: one for each bias -> one for each tensor of the mask, None where it is not a bias"""
    found = iter(of_biases)
    return [next(found, None) if role == "bias" else None for role in rule.roles()[:count]]


def _biases(rule, of_tensors):
    """The other way round; [] where there is none."""
    found = [t for role, t in zip(rule.roles(), of_tensors) if role == "bias"]
    return [] if any(t is None for t in found) else found


def _directions(rule, along, lse):
    """Of biases, in the type of sums: float32 where biases have 16 bits"""
    return [u.to(lse.dtype) for u in _biases(rule, along)]


def _resolved(tensor):
    """PyTorch hands on the negative of a tensor as a view that only says so."""
    return None if tensor is None else tensor.resolve_neg()


def backward(saved, dcontext, dlse, rule, seed, of_tensors):
    """saved: (q, k, v, context, lse, *tensors)
    -> [dq, dk, dv, *one for each tensor of the mask: None unless of_tensors and it is a bias]"""
    q, k, v, context, lse, *tensors = saved
    found = attend_backward(q, k, v, context, lse, _resolved(dcontext), _resolved(dlse),
                            mask=mask_of(rule, tensors, q), with_dbias=of_tensors, **options(rule, seed, q, k))
    biases = [d.to(t.dtype) for d, t in zip(found.dbias, _biases(rule, tensors))] if of_tensors else []
    return [found.dq, found.dk, found.dv, *_of_tensors(rule, biases, len(tensors))]


def tangent(saved, along, rule, seed):
    """along: the directions of q, k, v and of each tensor of the mask; None stands still
    -> tcontext, tlse"""
    q, k, v, context, lse, *tensors = saved
    uq, uk, uv, *ubias = map(_resolved, along)
    found = attend_tangent(q, k, v, context, lse, uq, uk, uv, _directions(rule, ubias, lse),
                           mask=mask_of(rule, tensors), **options(rule, seed, q, k))
    return found.tcontext, found.tlse


def second(saved, dcontext, dlse, along, rule, seed, of_tensors):
    """-> [hq, hk, hv, *of tensors as in backward], hdcontext, hdlse"""
    q, k, v, context, lse, *tensors = saved
    uq, uk, uv, *ubias = map(_resolved, along)
    found = attend_second(q, k, v, context, lse, _resolved(dcontext), uq, uk, uv,
                          _directions(rule, ubias, lse), _resolved(dlse), mask=mask_of(rule, tensors),
                          with_hbias=of_tensors, **options(rule, seed, q, k))
    biases = [h.to(t.dtype) for h, t in zip(found.hbias, _biases(rule, tensors))] if of_tensors else []
    return ([found.hq, found.hk, found.hv, *_of_tensors(rule, biases, len(tensors))], found.hdcontext,
            found.hdlse)
