"""The samples that PyTorch ships for its own attention: results and gradients, each held to float64.

An error may be twice PyTorch's, of its math kernel in the same dtype, and a floor: PyTorch divides a row's
weights by their sum, so that they are exact by luck where one key has it all. cephalo computes them again
from lse, and what is allowed is what rounding can do to that, to first order (docs/numerics.md).
"""

import importlib.util
import sys
import types
import unittest

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from cephalo.torch import scaled_dot_product_attention

if importlib.util.find_spec("expecttest") is None:  # PyTorch's samples import it, and use none of it
    sys.modules["expecttest"] = types.ModuleType("expecttest")
    sys.modules["expecttest"].TestCase = unittest.TestCase
op_db = pytest.importorskip("torch.testing._internal.common_methods_invocations").op_db

NAME = "nn.functional.scaled_dot_product_attention"
# Half a unit in the last place, relative to a number
UNITS = {torch.float64: 2.0 ** -53, torch.float32: 2.0 ** -24, torch.float16: 2.0 ** -11,
         torch.bfloat16: 2.0 ** -8}
LAYOUTS = {"contiguous": lambda t: t.contiguous(), "strided": lambda t: t.mT.contiguous().mT}


def samples(dtype):
    torch.manual_seed(0)
    op = next(op for op in op_db if op.name == NAME)
    found = [s for s in op.sample_inputs("cpu", dtype) if s.kwargs.get("dropout_p", 0.0) == 0.0]
    assert len(found) >= 10
    return found


def plain(*arguments, **named):
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*arguments, **named)


def run(f, leaves, named, dcontext):
    """-> [context, dq, dk, dv and, with a float mask, its gradient], all float64"""
    leaves = [t.detach().requires_grad_() for t in leaves]
    mask = {"attn_mask": leaves[3]} if len(leaves) > 3 else {}
    context = f(*leaves[:3], **(named | mask))
    found = torch.autograd.grad(context, leaves, dcontext.to(context.dtype))
    return [t.detach().double() for t in (context, *found)]


def weights_of(q, k, named, mask):
    scores = q @ k.mT * (q.shape[-1] ** -0.5)
    if mask is not None:
        scores = scores + mask
    if named.get("is_causal"):
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    return scores.softmax(-1), scores.logsumexp(-1, keepdim=True)


def noise(leaves, named, dcontext):
    """What rounding can do to context and to each gradient, to first order: two lists of sizes in the shapes
    of run's results, in units of that rounding. First of sums; then of a context that was stored rounded, on
    which delta = dcontext · context depends."""
    q, k, v, *masks = (t.double() for t in leaves)
    scale = q.shape[-1] ** -0.5
    weights, lse = weights_of(q, k, named, masks[0] if masks else None)
    context = weights @ v
    dscores = weights * (dcontext @ v.mT - (dcontext * context).sum(-1, keepdim=True))
    # A sum on the way to the score is rounded head_dim times, to each side as it comes.
    of_score = q.shape[-1] ** 0.5 / 8 * (scale * q.abs() @ k.abs().mT + lse.abs())
    of_dscore = of_score * dscores.abs()
    of_delta = (dcontext.abs() * (weights @ v.abs())).sum(-1, keepdim=True)
    sizes = weights * (dcontext.abs() @ v.abs().mT + of_delta + of_dscore.sum(-1, keepdim=True)) + of_dscore
    of_weights = weights * (1 + of_score)
    by_context = weights * (dcontext * context).abs().sum(-1, keepdim=True)

    def gradients(dscores, dv):
        found = [scale * dscores @ k.abs(), scale * dscores.mT @ q.abs(), dv]
        found += [dscores] if masks else []
        return [t.sum_to_size(leaf.shape) for t, leaf in zip(found, leaves)]

    return ([of_weights @ v.abs(), *gradients(sizes, of_weights.mT @ dcontext.abs())],
            [torch.zeros_like(context), *gradients(by_context, torch.zeros_like(v))])


def prepared(sample, dtype, layout):
    leaves = [sample.input, *sample.args]
    named = {key: value for key, value in sample.kwargs.items() if key != "attn_mask"}
    mask = sample.kwargs.get("attn_mask")
    if mask is not None and mask.is_floating_point():
        leaves.append(mask)
    elif mask is not None:
        named["attn_mask"] = mask
    return [LAYOUTS[layout](t.detach().to(dtype)) for t in leaves], named


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", UNITS)
def test_results_and_gradients_of_the_samples_are_as_near_to_float64_as_those_of_pytorch(dtype, layout):
    in_sums = 4 * UNITS[dtype if dtype == torch.float64 else torch.float32]
    for number, sample in enumerate(samples(torch.float64 if dtype == torch.float64 else torch.float32)):
        leaves, named = prepared(sample, dtype, layout)
        wide = [t.double() for t in leaves]
        dcontext = torch.randn_like(plain(*wide[:3], **named)).to(dtype)
        exact = run(plain, wide, named, dcontext.double())
        theirs = run(plain, leaves, named, dcontext)
        ours = run(scaled_dot_product_attention, leaves, named, dcontext)
        of_sums, of_context = noise(wide, named, dcontext.double())
        for name, a, b, e, sums, stored in zip(("context", "dq", "dk", "dv", "dmask"), ours, theirs, exact,
                                               of_sums, of_context):
            floor = in_sums * sums.max()
            if UNITS[dtype] > in_sums:  # 16 bits: stored once, and context was
                floor = floor + UNITS[dtype] * (e.abs().max() + stored.max())
            assert (a - e).abs().max() <= 2 * (b - e).abs().max() + floor, (number, name, sample)
