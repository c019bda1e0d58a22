"""Attention as operators of PyTorch, torch.ops.cephalo: what torch.compile, torch.export, torch.jit.trace
and dispatch modes see in place of a call.

A rule travels as plain values, the mask's tensors as a list, and the seed as a tensor, so that each run of
a compiled graph draws another one.
"""

import torch
from torch.utils.flop_counter import register_flop_formula

from . import _engine, _vmap

_LIBRARY = torch.library.Library("cephalo", "DEF")
_RULE = "str mask, float? scale, float? softcap, float dropout"
_LIBRARY.define(f"attend(Tensor q, Tensor k, Tensor v, Tensor[] tensors, Tensor? seed, {_RULE}) "
                "-> (Tensor, Tensor)")
_LIBRARY.define("attend_backward(Tensor q, Tensor k, Tensor v, Tensor context, Tensor lse, Tensor dcontext, "
                f"Tensor? dlse, Tensor[] tensors, Tensor? seed, {_RULE}, bool of_tensors) -> Tensor[]")
_LIBRARY.define("attend_second(Tensor q, Tensor k, Tensor v, Tensor context, Tensor lse, Tensor dcontext, "
                "Tensor? dlse, Tensor? uq, Tensor? uk, Tensor? uv, Tensor[] tensors, Tensor?[] utensors, "
                f"Tensor? seed, {_RULE}, bool of_tensors) -> Tensor[]")


def attend(q, k, v, rule, seed, tensors):
    """seed: int64 [] on q's device, or None without dropout -> context, lse"""
    return torch.ops.cephalo.attend(q, k, v, list(tensors), seed, *rule)


def _seed(seed):
    """Of the host as a number; kernels of a GPU read their own when they run."""
    if seed is None:
        return 0
    return seed if seed.is_cuda else int(seed)


@torch.library.impl(_LIBRARY, "attend", "CPU")
@torch.library.impl(_LIBRARY, "attend", "CUDA")
def _attend(q, k, v, tensors, seed, *rule):
    return _engine.forward(q, k, v, _engine.Rule(*rule), _seed(seed), tensors)


@torch.library.impl(_LIBRARY, "attend_backward", "CPU")
@torch.library.impl(_LIBRARY, "attend_backward", "CUDA")
def _attend_backward(q, k, v, context, lse, dcontext, dlse, tensors, seed, mask, scale, softcap, dropout,
                     of_tensors):
    rule = _engine.Rule(mask, scale, softcap, dropout)
    found = _engine.backward((q, k, v, context, lse, *tensors), dcontext, dlse, rule, _seed(seed),
                             of_tensors)
    return [t for t in found if t is not None]


@torch.library.impl(_LIBRARY, "attend_second", "CPU")
def _attend_second(q, k, v, context, lse, dcontext, dlse, uq, uk, uv, tensors, utensors, seed, mask, scale,
                   softcap, dropout, of_tensors):
    """-> [hq, hk, hv, hdcontext, hdlse, *one for each bias if of_tensors]"""
    found, hdcontext, hdlse = _engine.second((q, k, v, context, lse, *tensors), dcontext, dlse,
                                             (uq, uk, uv, *utensors),
                                             _engine.Rule(mask, scale, softcap, dropout), _seed(seed),
                                             of_tensors)
    return [*found[:3], hdcontext, hdlse, *(t for t in found[3:] if t is not None)]


def _lse_like(q):
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    return q.new_empty(q.shape[:-1], dtype=dtype)


@torch.library.register_fake("cephalo::attend", lib=_LIBRARY)
def _attend_shapes(q, k, v, tensors, seed, *rule):
    context = _engine.context_like(q, v)
    if context is None:
        context = q.new_empty((*q.shape[:-1], v.shape[-1]))
    return context, _lse_like(q)


def _differentiated(mask, tensors, of_tensors):
    roles = _engine.Rule(mask).roles()
    return [t for role, t in zip(roles, tensors) if of_tensors and role == "bias"]


@torch.library.register_fake("cephalo::attend_backward", lib=_LIBRARY)
def _attend_backward_shapes(q, k, v, context, lse, dcontext, dlse, tensors, seed, mask, scale, softcap,
                            dropout, of_tensors):
    return [t.new_empty(t.shape) for t in (q, k, v, *_differentiated(mask, tensors, of_tensors))]


@torch.library.register_fake("cephalo::attend_second", lib=_LIBRARY)
def _attend_second_shapes(q, k, v, context, lse, dcontext, dlse, uq, uk, uv, tensors, utensors, seed, mask,
                          scale, softcap, dropout, of_tensors):
    return [t.new_empty(t.shape)
            for t in (q, k, v, context, lse, *_differentiated(mask, tensors, of_tensors))]


def _wanted(needs):
    """Whether any of a list of tensors needs a gradient."""
    return any(needs) if isinstance(needs, (list, tuple)) else bool(needs)


def _spread(found, mask, of_tensors):
    """One for each bias -> one for each tensor of the mask, None where it is not one"""
    found = iter(found)
    return [next(found) if of_tensors and role == "bias" else None for role in _engine.Rule(mask).roles()]


def _setup_context(ctx, inputs, output):
    q, k, v, tensors, seed, *rule = inputs
    ctx.count, ctx.rule = len(tensors), rule
    ctx.save_for_backward(q, k, v, *output, *tensors, *([] if seed is None else [seed]))
    ctx.set_materialize_grads(False)


def _backward(ctx, dcontext, dlse):
    q, k, v, context, lse, *rest = ctx.saved_tensors
    tensors, seed = rest[:ctx.count], rest[ctx.count] if len(rest) > ctx.count else None
    if dcontext is None:
        dcontext = torch.zeros_like(context)
    of_tensors = _wanted(ctx.needs_input_grad[3])
    dq, dk, dv, *dbias = torch.ops.cephalo.attend_backward(q, k, v, context, lse, dcontext, dlse, tensors,
                                                           seed, *ctx.rule, of_tensors)
    return dq, dk, dv, _spread(dbias, ctx.rule[0], of_tensors), *[None] * 5


torch.library.register_autograd("cephalo::attend", _backward, setup_context=_setup_context, lib=_LIBRARY)


def _setup_second_context(ctx, inputs, output):
    *arrays, tensors, seed, mask, scale, softcap, dropout, ctx.of_tensors = inputs
    ctx.count, ctx.rule, ctx.has_dlse = len(tensors), (mask, scale, softcap, dropout), arrays[6] is not None
    ctx.save_for_backward(*(t for t in arrays if t is not None), *tensors, *([] if seed is None else [seed]))


def _second_backward(ctx, directions):
    """directions: of dq, dk, dv and of each bias's gradient -> gradients of attend_backward's arguments"""
    q, k, v, context, lse, dcontext, *rest = ctx.saved_tensors
    dlse = rest.pop(0) if ctx.has_dlse else None
    tensors, seed = rest[:ctx.count], rest[ctx.count] if len(rest) > ctx.count else None
    uq, uk, uv, *ubias = directions
    of_tensors = _wanted(ctx.needs_input_grad[7])
    hq, hk, hv, hdcontext, hdlse, *hbias = torch.ops.cephalo.attend_second(
        q, k, v, context, lse, dcontext, dlse, uq, uk, uv, tensors, _spread(ubias, ctx.rule[0], ctx.of_tensors),
        seed, *ctx.rule, of_tensors)
    return (hq, hk, hv, None, None, hdcontext, hdlse if ctx.has_dlse else None,
            _spread(hbias, ctx.rule[0], of_tensors), *[None] * 6)


torch.library.register_autograd("cephalo::attend_backward", _second_backward,
                                setup_context=_setup_second_context, lib=_LIBRARY)


def _third(ctx, *directions):
    raise NotImplementedError("cephalo.torch: third derivatives of attention are not supported")


torch.library.register_autograd("cephalo::attend_second", _third, lib=_LIBRARY)


@torch.library.register_vmap("cephalo::attend", lib=_LIBRARY)
def _attend_vmap(info, in_dims, q, k, v, tensors, seed, *rule):
    def call(arrays, masks, number):
        seed = None if number is None else torch.tensor(number)
        return torch.ops.cephalo.attend(*arrays, masks, seed, *rule)

    found = _vmap.run(call, info, list(zip((q, k, v), in_dims)), list(zip(tensors, in_dims[3])), rule[3],
                      None if seed is None else int(seed),
                      folds=_engine.Rule(*rule).lets_batch_grow(in_dims[3]))
    return tuple(found), (0, 0)


def _pairs(q_shape, k_shape):
    batch, num_heads, q_tokens, head_dim = q_shape
    return batch * num_heads * q_tokens * k_shape[2], head_dim


@register_flop_formula(torch.ops.cephalo.attend)
def _attend_flops(q_shape, k_shape, v_shape, *arguments, **named):
    """As PyTorch counts its own: every pair, whatever is hidden."""
    pairs, head_dim = _pairs(q_shape, k_shape)
    return 2 * pairs * (head_dim + v_shape[-1])


@register_flop_formula(torch.ops.cephalo.attend_backward)
def _attend_backward_flops(q_shape, k_shape, v_shape, *arguments, **named):
    pairs, head_dim = _pairs(q_shape, k_shape)
    return 2 * pairs * (3 * head_dim + 2 * v_shape[-1])


@register_flop_formula(torch.ops.cephalo.attend_second)
def _attend_second_flops(q_shape, k_shape, v_shape, *arguments, **named):
    """Products as wide as q: 1 for scores, 2 each for their direction, hq and hk; as wide as v: 2 for context's
    direction, 2 for what comes back, 1 for hv."""
    pairs, head_dim = _pairs(q_shape, k_shape)
    return 2 * pairs * (7 * head_dim + 5 * v_shape[-1])
