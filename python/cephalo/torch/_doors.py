"""Three ways into the engine, by what PyTorch is doing at the moment.

Plain tensors are computed at once. Transforms of torch.func and forward mode get a Function that tells them
about attention; whatever records or rewrites calls gets an operator. Each of the three fails where another
is needed, and the last two cost microseconds that a plain call should not pay.
"""

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from . import _engine, _ops, _transforms, _vmap

_PLAIN = (Tensor, nn.Parameter)

_dispatch_modes = torch._C._len_torch_dispatch_stack
_tracing_state = torch._C._get_tracing_state
_transforms_active = torch._C._are_functorch_transforms_active


class _Attention(torch.autograd.Function):
    """As _transforms.Attend, in the old style, which is quicker: for plain tensors."""

    @staticmethod
    def forward(ctx, q, k, v, rule, seed, *tensors):
        context, lse = _engine.forward(q, k, v, rule, seed, tensors)
        ctx.save_for_backward(q, k, v, context, lse, *tensors)
        ctx.rule, ctx.seed = rule, seed
        return context

    @staticmethod
    def backward(ctx, dcontext):
        saved = ctx.saved_tensors  # once: checkpointing computes them when they are asked for
        of_tensors = any(ctx.needs_input_grad[5:])
        if not torch.is_grad_enabled() and _is_plain_gradient(dcontext):
            dq, dk, dv, *dtensors = _engine.backward(saved, dcontext, None, ctx.rule, ctx.seed,
                                                     of_tensors)
            return dq, dk, dv, None, None, *dtensors

        q, k, v, context, lse, *tensors = saved

        def call(dcontext):
            return _transforms.AttendBackward.apply(q, k, v, context, lse, dcontext, None, ctx.rule, ctx.seed,
                                                    of_tensors, *tensors)

        dq, dk, dv, *dtensors = _vmap.one_by_one(call, dcontext)
        return dq, dk, dv, None, None, *dtensors


def _is_plain_gradient(dcontext):
    """Nobody asks for derivatives of it, maps over it or records what becomes of it."""
    return (type(dcontext) is Tensor and _dispatch_modes() == 0 and not _transforms_active() and
            not torch._C._functorch.is_legacy_batchedtensor(dcontext))


def _is_recorded(q, k, v, tensors):
    if torch.compiler.is_compiling() or _dispatch_modes() > 0 or _tracing_state() is not None:
        return True
    if not tensors and type(q) in _PLAIN and type(k) in _PLAIN and type(v) in _PLAIN:
        return False
    return any(map(_has_dispatch, (q, k, v, *tensors)))


def is_plain(q, k, v, tensors):
    """Nothing records, transforms or rewrites what is computed."""
    return not (_is_recorded(q, k, v, tensors) or _transforms_active() or forward_ad._current_level >= 0)


def _has_dispatch(tensor):
    """Of a subclass that decides itself what operators do: fake, functional, nested tensors."""
    return type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl


def needs_gradient(q, k, v, tensors):
    if not torch.is_grad_enabled():
        return False
    if q.requires_grad or k.requires_grad or v.requires_grad:
        return True
    return bool(tensors) and any(t.requires_grad for t in tensors)


def _seed(q):
    """From PyTorch's generator, whatever transform is active. In a graph that is being captured the GPU draws it,
    once for each replay."""
    with torch._C._DisableFuncTorch():
        if q.is_cuda and torch.cuda.is_current_stream_capturing():
            return torch.randint(1 << 62, (), device=q.device)
        return int(torch.randint(1 << 62, ()))


@torch.compiler.assume_constant_result
def _exports_to_onnx():
    """PyTorch's own answer, which torch.compile would take to be False."""
    return torch.onnx.is_in_onnx_export()


def for_onnx():
    """The operators of ONNX where a model is exported to it, else None. Asked of recorded calls alone."""
    if not (torch.compiler.is_exporting() or _tracing_state() is not None) or not _exports_to_onnx():
        return None
    from . import onnx

    return onnx


def context(q, k, v, rule, tensors):
    """q, k, v and the mask's tensors of rank 4 -> context [batch, num_heads, q_tokens, v_dim]"""
    if _is_recorded(q, k, v, tensors):
        if onnx := for_onnx():
            return onnx.context(q, k, v, rule, tensors)
        seed = torch.randint(1 << 62, (), device=q.device) if rule.dropout else None
        return _ops.attend(q, k, v, rule, seed, tensors)[0]
    seed = _seed(q) if rule.dropout else 0
    if _transforms_active() or forward_ad._current_level >= 0:
        return _transforms.Attend.apply(q, k, v, rule, seed, *tensors)[0]
    if not needs_gradient(q, k, v, tensors):
        return _engine.context(q, k, v, rule, seed, tensors)
    return _Attention.apply(q, k, v, rule, seed, *tensors)


def context_and_lse(q, k, v, rule, tensors):
    """As context, and lse [batch, num_heads, q_tokens], which has derivatives too"""
    if _is_recorded(q, k, v, tensors):
        if onnx := for_onnx():
            return onnx.context_and_lse(q, k, v, rule, tensors)
        seed = torch.randint(1 << 62, (), device=q.device) if rule.dropout else None
        return _ops.attend(q, k, v, rule, seed, tensors)
    seed = _seed(q) if rule.dropout else 0
    if _transforms_active() or forward_ad._current_level >= 0 or needs_gradient(q, k, v, tensors):
        return _transforms.Attend.apply(q, k, v, rule, seed, *tensors)
    return _engine.forward(q, k, v, rule, seed, tensors)
