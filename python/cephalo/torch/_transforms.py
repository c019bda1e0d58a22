"""Attention under torch.func's transforms, and its derivatives: what PyTorch needs to know of them.

Functions of torch.autograd in the new style, one for each thing that is computed. Arguments that are not
tensors follow those that are: rule, seed, of_tensors (whether the mask's biases are differentiated). Last
come the mask's tensors and, where there are directions, theirs.

Derivatives of a derivative are counted where the numbers come from: context and lse follow from q, k and v,
so nothing flows back into them.
"""

import torch

from . import _engine, _vmap


def _pairs(tensors, dims):
    return list(zip(tensors, dims))


def _mapped(info, in_dims, arguments, function, arrays):
    """function.apply over the mapped axis. arguments: so many arrays, then rule, seed and perhaps
    of_tensors, then tensors of the mask. What biases get is summed over batch, so it is not joined."""
    first_mask = arrays + (3 if function.HAS_FLAG else 2)
    rule, seed, *more = arguments[arrays:first_mask]

    def call(some, masks, seed):
        return function.apply(*some, rule, seed, *more, *masks)

    dims = in_dims[first_mask:]
    found = _vmap.run(call, info, _pairs(arguments[:arrays], in_dims), _pairs(arguments[first_mask:], dims),
                      rule.dropout, seed, folds=not any(more) and rule.lets_batch_grow(dims))
    return tuple(found), tuple(None if t is None else 0 for t in found)


def _materialised(gradient, like):
    return torch.zeros_like(like) if gradient is None else gradient


class Attend(torch.autograd.Function):
    """(q, k, v, rule, seed, *tensors) -> context, lse"""
    HAS_FLAG = False

    @staticmethod
    def forward(q, k, v, rule, seed, *tensors):
        return _engine.forward(q, k, v, rule, seed, tensors)

    @staticmethod
    def setup_context(ctx, inputs, output):
        q, k, v, ctx.rule, ctx.seed, *tensors = inputs
        ctx.save_for_backward(q, k, v, *output, *tensors)
        ctx.save_for_forward(q, k, v, *output, *tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, dcontext, dlse):
        q, k, v, context, lse, *tensors = ctx.saved_tensors
        of_tensors = any(ctx.needs_input_grad[5:])

        def call(dcontext, dlse):
            return AttendBackward.apply(q, k, v, context, lse, _materialised(dcontext, context), dlse, ctx.rule,
                                        ctx.seed, of_tensors, *tensors)

        dq, dk, dv, *dtensors = _vmap.one_by_one(call, dcontext, dlse)
        return dq, dk, dv, None, None, *dtensors

    @staticmethod
    def jvp(ctx, uq, uk, uv, _, __, *of_tensors):
        q, k, v, context, lse, *tensors = ctx.saved_tensors
        return AttendTangent.apply(q, k, v, context, lse, uq, uk, uv, ctx.rule, ctx.seed, *tensors,
                                   *of_tensors)

    @staticmethod
    def vmap(info, in_dims, *arguments):
        return _mapped(info, in_dims, arguments, Attend, 3)


class AttendBackward(torch.autograd.Function):
    """(q, k, v, context, lse, dcontext, dlse, rule, seed, of_tensors, *tensors) -> dq, dk, dv, *dtensors"""
    HAS_FLAG = True

    @staticmethod
    def forward(q, k, v, context, lse, dcontext, dlse, rule, seed, of_tensors, *tensors):
        return tuple(_engine.backward((q, k, v, context, lse, *tensors), dcontext, dlse, rule, seed,
                                      of_tensors))

    @staticmethod
    def setup_context(ctx, inputs, output):
        *arrays, ctx.rule, ctx.seed, ctx.of_tensors = inputs[:10]
        ctx.save_for_backward(*arrays, *inputs[10:])
        ctx.save_for_forward(*arrays, *inputs[10:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, uq, uk, uv, *utensors):
        q, k, v, context, lse, dcontext, dlse, *tensors = ctx.saved_tensors
        of_tensors = any(ctx.needs_input_grad[10:])
        hq, hk, hv, hdcontext, hdlse, *htensors = AttendSecond.apply(
            q, k, v, context, lse, dcontext, dlse, uq, uk, uv, ctx.rule, ctx.seed, of_tensors, *tensors,
            *utensors)
        return (hq, hk, hv, None, None, hdcontext, None if dlse is None else hdlse, None, None, None,
                *htensors)

    @staticmethod
    def jvp(ctx, uq, uk, uv, _, __, udcontext, udlse, *rest):
        q, k, v, context, lse, dcontext, dlse, *tensors = ctx.saved_tensors
        utensors = rest[3:]
        moved = AttendSecond.apply(q, k, v, context, lse, dcontext, dlse, uq, uk, uv, ctx.rule, ctx.seed,
                                   ctx.of_tensors, *tensors, *utensors)
        found = [*moved[:3], *moved[5:]]
        if udcontext is not None or udlse is not None:  # gradients are linear in what comes back
            more = AttendBackward.apply(q, k, v, context, lse, _materialised(udcontext, context), udlse,
                                        ctx.rule, ctx.seed, ctx.of_tensors, *tensors)
            found = [a if b is None else a + b for a, b in zip(found, more)]
        return tuple(found)

    @staticmethod
    def vmap(info, in_dims, *arguments):
        return _mapped(info, in_dims, arguments, AttendBackward, 7)


class AttendTangent(torch.autograd.Function):
    """(q, k, v, context, lse, uq, uk, uv, rule, seed, *tensors, *their directions) -> tcontext, tlse"""
    HAS_FLAG = False

    @staticmethod
    def forward(q, k, v, context, lse, uq, uk, uv, rule, seed, *tensors):
        count = len(tensors) // 2
        return _engine.tangent((q, k, v, context, lse, *tensors[:count]), (uq, uk, uv, *tensors[count:]),
                               rule, seed)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *arrays, ctx.rule, ctx.seed = inputs[:10]
        ctx.save_for_backward(*arrays, *inputs[10:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, wcontext, wlse):
        """<w, tangent along u> = <gradient of w, u>: its derivatives are those of the gradient."""
        q, k, v, context, lse, uq, uk, uv, *tensors = ctx.saved_tensors
        count = len(tensors) // 2
        tensors, utensors = tensors[:count], tensors[count:]
        wcontext = _materialised(wcontext, context)
        of_tensors = any(ctx.needs_input_grad[10:])
        hq, hk, hv, _, _, *htensors = AttendSecond.apply(q, k, v, context, lse, wcontext, wlse, uq, uk, uv,
                                                         ctx.rule, ctx.seed, of_tensors, *tensors, *utensors)
        dq, dk, dv, *dtensors = AttendBackward.apply(q, k, v, context, lse, wcontext, wlse, ctx.rule,
                                                     ctx.seed, of_tensors, *tensors)
        given = [d if u is not None else None for d, u in zip((dq, dk, dv, *dtensors), (uq, uk, uv, *utensors))]
        return hq, hk, hv, None, None, *given[:3], None, None, *htensors, *given[3:]

    @staticmethod
    def vmap(info, in_dims, *arguments):
        return _mapped(info, in_dims, arguments, AttendTangent, 8)


class AttendSecond(torch.autograd.Function):
    """(q, k, v, context, lse, dcontext, dlse, uq, uk, uv, rule, seed, of_tensors, *tensors, *their directions)
    -> hq, hk, hv, hdcontext, hdlse, *htensors"""
    HAS_FLAG = True

    @staticmethod
    def forward(q, k, v, context, lse, dcontext, dlse, uq, uk, uv, rule, seed, of_tensors, *tensors):
        count = len(tensors) // 2
        found, hdcontext, hdlse = _engine.second((q, k, v, context, lse, *tensors[:count]), dcontext, dlse,
                                                 (uq, uk, uv, *tensors[count:]), rule, seed, of_tensors)
        return *found[:3], hdcontext, hdlse, *found[3:]

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *third):
        raise NotImplementedError("cephalo.torch: third derivatives of attention are not supported")

    @staticmethod
    def jvp(ctx, *third):
        raise NotImplementedError("cephalo.torch: third derivatives of attention are not supported")

    @staticmethod
    def vmap(info, in_dims, *arguments):
        return _mapped(info, in_dims, arguments, AttendSecond, 10)
