"""Looking at attention without storing it: weights of chosen heads and rows, small maps and sums of rows,
computed again from q, k and the lse that attend returned.

Numbers to look at: they have no gradient, whatever q and k have. Where PyTorch records or transforms they are
operators, torch.ops.cephalo.weights, pooled_weights and row_sums.
"""

import torch
from torch import Tensor

import cephalo

from . import _doors, _engine, _vmap
from ._masks import mask_from
from .sdpa import _autocasts, _lowered

_LIBRARY = torch.library.Library("cephalo", "FRAGMENT")
_CALL = "Tensor q, Tensor k, Tensor lse, Tensor[] tensors, str mask, float? scale, float? softcap"
_LIBRARY.define(f"weights({_CALL}, int[] heads, int[] rows) -> Tensor")
_LIBRARY.define(f"pooled_weights({_CALL}, int cells, int head, int batch) -> (Tensor, Tensor)")
_LIBRARY.define(f"row_sums({_CALL}, Tensor? tokens) -> Tensor")


def _options(q, k, tensors, mask, scale, softcap):
    rule = _engine.Rule(mask, scale, softcap)
    return {"mask": _engine.mask_of(rule, tensors), **_engine.options(rule, 0, q, k)}


@torch.library.impl(_LIBRARY, "weights", "CPU")
def _weights(q, k, lse, tensors, mask, scale, softcap, heads, rows):
    return cephalo.weights(q, k, lse, heads=heads, rows=rows,
                           **_options(q, k, tensors, mask, scale, softcap))


@torch.library.register_fake("cephalo::weights", lib=_LIBRARY)
def _weights_shape(q, k, lse, tensors, mask, scale, softcap, heads, rows):
    return lse.new_empty((q.shape[0], len(heads) or q.shape[1], len(rows) or q.shape[2], k.shape[2]))


@torch.library.impl(_LIBRARY, "pooled_weights", "CPU")
def _pooled_weights(q, k, lse, tensors, mask, scale, softcap, cells, head, batch):
    return tuple(cephalo.pooled_weights(q, k, lse, cells, head, batch,
                                        **_options(q, k, tensors, mask, scale, softcap)))


@torch.library.register_fake("cephalo::pooled_weights", lib=_LIBRARY)
def _pooled_weights_shape(q, k, lse, tensors, mask, scale, softcap, cells, head, batch):
    shape = (min(cells, q.shape[2]), min(cells, k.shape[2]))
    return lse.new_empty(shape, dtype=torch.float32), lse.new_empty(shape, dtype=torch.float32)


@torch.library.impl(_LIBRARY, "row_sums", "CPU")
def _row_sums(q, k, lse, tensors, mask, scale, softcap, tokens):
    return cephalo.row_sums(q, k, lse, tokens, **_options(q, k, tensors, mask, scale, softcap))


@torch.library.register_fake("cephalo::row_sums", lib=_LIBRARY)
def _row_sums_shape(q, k, lse, tensors, mask, scale, softcap, tokens):
    return q.new_empty((*q.shape[:3], len(cephalo.ROW_SUMS)), dtype=torch.float64)


def _register_vmap(name):
    """One after the other: a head, a row or a sequence that is asked for is one of each."""
    op = getattr(torch.ops.cephalo, name)

    def mapped(info, in_dims, q, k, lse, tensors, mask, scale, softcap, *asked):
        def call(arrays, masks, _):
            *arrays, tokens = arrays
            found = op(*arrays, masks, mask, scale, softcap, *(asked if tokens is None else (tokens,)))
            return found if isinstance(found, tuple) else (found,)

        tokens = asked[0] if name == "row_sums" else None
        arrays = [*zip((q, k, lse), in_dims), (tokens, in_dims[7] if name == "row_sums" else None)]
        found = _vmap.run(call, info, arrays, list(zip(tensors, in_dims[3])), 0.0, None, folds=False)
        return (tuple(found), (0, 0)) if len(found) == 2 else (found[0], 0)

    torch.library.register_vmap(f"cephalo::{name}", mapped, lib=_LIBRARY)


for _name in ("weights", "pooled_weights", "row_sums"):
    _register_vmap(_name)


def _looked_at(plain, op, q, k, lse, mask, scale, softcap, *asked):
    """[batch, num_heads, q_tokens, head_dim], k likewise and lse [batch, num_heads, q_tokens], or all of lower
    rank"""
    if _autocasts():
        q, k = map(_lowered, (q, k))
    q, k, lse = (t.detach()[(None,) * (rank - t.dim())] for t, rank in ((q, 4), (k, 4), (lse, 3)))
    tensors = [t.detach() for t in mask.tensors]
    rule = _engine.Rule(mask.rule_text(), scale, softcap)
    is_plain = not q.is_meta and _doors.is_plain(q, k, lse, tensors)
    if not is_plain and (onnx := _doors.for_onnx()):
        return onnx.looked_at(op.__name__, q, k, rule, tensors, *asked)
    return (plain if is_plain else op)(q, k, lse, tensors, rule.mask, scale, softcap, *asked)


def weights(q: Tensor, k: Tensor, lse: Tensor, mask=None, scale: float | None = None,
            softcap: float | None = None, heads=(), rows=()) -> Tensor:
    """The weights that attend used, before dropout, from q, k and the lse that it returned.

    heads, rows: the ones you want; empty: all. Nothing larger than the answer is stored.
    -> [batch, heads, rows, kv_tokens], without a gradient
    """
    return _looked_at(_weights, torch.ops.cephalo.weights, q, k, lse, mask_from(mask, "weights"), scale, softcap,
                      list(heads), list(rows))


def pooled_weights(q: Tensor, k: Tensor, lse: Tensor, cells: int, head: int, batch: int = 0, mask=None,
                   scale: float | None = None, softcap: float | None = None) -> cephalo.PooledWeights:
    """A small map of one head, without storing the matrix and without a gradient: the named tuple (largest,
    mean), each [cells, cells]."""
    found = _looked_at(_pooled_weights, torch.ops.cephalo.pooled_weights, q, k, lse,
                       mask_from(mask, "pooled_weights"), scale, softcap, cells, head, batch)
    return cephalo.PooledWeights(*found)


def row_sums(q: Tensor, k: Tensor, lse: Tensor, tokens: Tensor | None = None, mask=None,
             scale: float | None = None, softcap: float | None = None) -> Tensor:
    """For every query row what cephalo.ROW_SUMS names: entropy, largest, distance ...

    tokens: int64 [kv_tokens] -> float64 [batch, num_heads, q_tokens, 11], without a gradient
    """
    return _looked_at(_row_sums, torch.ops.cephalo.row_sums, q, k, lse, mask_from(mask, "row_sums"), scale,
                      softcap, tokens)
