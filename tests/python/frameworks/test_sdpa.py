"""cephalo.torch.scaled_dot_product_attention beside F.scaled_dot_product_attention."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.nn.attention.bias import CausalBias, causal_lower_right, causal_upper_left

from cephalo.torch import scaled_dot_product_attention
from cephalo.torch.sdpa import _broadcast

BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
# query, key, value
SHAPES = [
    ((4, 8), (6, 8), (6, 5)),
    ((3, 4, 8), (3, 6, 8), (3, 6, 5)),
    ((1, 12, 16, 64), (1, 12, 16, 64), (1, 12, 16, 64)),
    ((2, 3, 97, 40), (2, 3, 31, 40), (2, 3, 31, 59)),
    ((2, 2, 3, 4, 8), (2, 2, 3, 6, 8), (2, 1, 3, 6, 8)),
    ((1, 3, 4, 8), (2, 1, 6, 8), (2, 3, 6, 8)),
    ((3, 4, 8), (2, 3, 6, 8), (6, 8)),
    ((2, 1, 4, 8), (2, 3, 6, 8), (2, 3, 6, 8)),
    ((3, 3, 4, 8), (3, 3, 8), (3, 3, 5)),
    ((2, 3, 4, 8), (2, 3, 0, 8), (2, 3, 0, 8)),
    ((0, 3, 4, 8), (0, 3, 6, 8), (0, 3, 6, 8)),
]
MASK_SHAPES = [(4, 6), (1, 6), (4, 1), (3, 1, 6), (2, 1, 4, 6), (2, 3, 4, 6), (1, 1, 4, 6)]


def normal(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_()


def far(ours, theirs):
    assert ours.shape == theirs.shape
    return (ours.double() - theirs.double()).abs().max().item() if ours.numel() else 0.0


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shapes", SHAPES)
def test_values_and_gradients_are_those_of_pytorch(shapes, dtype, is_causal):
    inputs = [normal(*shape, dtype=dtype) for shape in shapes]
    wide = [t.detach().double().requires_grad_() for t in inputs]
    theirs = F.scaled_dot_product_attention(*wide, is_causal=is_causal)
    ours = scaled_dot_product_attention(*inputs, is_causal=is_causal)
    assert ours.dtype == dtype and far(ours, theirs) <= BOUNDS[dtype]
    back = torch.randn_like(theirs).to(dtype)
    for a, b in zip(torch.autograd.grad(ours, inputs, back), torch.autograd.grad(theirs, wide, back.double())):
        assert a.dtype == dtype and far(a, b) <= 10 * BOUNDS[dtype]


UNITS = {torch.float16: 2.0 ** -11, torch.bfloat16: 2.0 ** -8}  # half a unit in the last place, relative


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4, 6), (1, 3, 1, 6)])
@pytest.mark.parametrize("mask_dtype", [None, torch.bool, torch.float32])
@pytest.mark.parametrize("dtype", UNITS)
def test_16_bit_gradients_are_as_near_to_float64_as_those_of_pytorch(dtype, mask_dtype, shape):
    """Twice PyTorch's error, and a floor where it is exact by luck: gradients are rounded, and context was."""
    inputs = [normal(*s, dtype=dtype) for s in ((2, 3, 4, 8), (2, 3, 6, 8), (2, 3, 6, 5))]
    if mask_dtype == torch.bool:
        mask = (torch.rand(shape) < 0.8) | (torch.arange(6) == 0)
    else:
        mask = torch.randn(shape).to(mask_dtype or dtype).requires_grad_()
    leaves = [*inputs, mask] if mask.requires_grad else inputs
    back = torch.randn(2, 3, 4, 5).to(dtype)

    def gradients(f, cast):
        given = [cast(t.detach()).requires_grad_() for t in leaves]
        context = f(*given[:3], given[3] if len(given) > 3 else mask)
        return torch.autograd.grad(context, given, cast(back))

    exact = gradients(F.scaled_dot_product_attention, torch.Tensor.double)
    theirs = gradients(F.scaled_dot_product_attention, lambda t: t.to(dtype))
    ours = gradients(scaled_dot_product_attention, lambda t: t)
    for a, b, e, leaf in zip(ours, theirs, exact, leaves):
        assert a.dtype == leaf.dtype
        assert far(a, e) <= 2 * far(b, e) + 2 * UNITS[dtype] * e.abs().max().item()


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shape", MASK_SHAPES)
def test_masks_broadcast_and_mean_what_they_do_in_pytorch(shape, dtype):
    q, k, v = (normal(*s, dtype=dtype).detach() for s in ((2, 3, 4, 8), (2, 3, 6, 8), (2, 3, 6, 5)))
    visible = torch.rand(shape) < 0.6  # some rows see nothing
    for mask in (visible, torch.randn(shape, dtype=torch.float64).to(dtype), torch.randn(shape)):
        wide = mask if mask.dtype == torch.bool else mask.double()
        theirs = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), wide)
        assert far(scaled_dot_product_attention(q, k, v, mask), theirs) <= BOUNDS[dtype]


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (5, 2, 3)])
@pytest.mark.parametrize("q_tokens, kv_tokens", [(4, 4), (4, 9), (1, 6)])
@pytest.mark.parametrize("made", [causal_upper_left, causal_lower_right])
def test_a_causal_bias_means_what_it_does_in_pytorch(made, q_tokens, kv_tokens, lead):
    q, k, v = normal(*lead, q_tokens, 8), normal(*lead, kv_tokens, 8), normal(*lead, kv_tokens, 5)
    causal_bias = made(q_tokens, kv_tokens)
    ours = scaled_dot_product_attention(q, k, v, causal_bias)
    theirs = F.scaled_dot_product_attention(q, k, v, causal_bias._materialize())
    assert far(ours, theirs) <= 1e-12
    for a, b in zip(torch.autograd.grad(ours.square().sum(), (q, k, v)),
                    torch.autograd.grad(theirs.square().sum(), (q, k, v))):
        assert far(a, b) <= 1e-11


def test_parameters_and_buffers_are_tensors():
    x = torch.randn(2, 4, 8)
    expected = F.scaled_dot_product_attention(x, x, x)
    found = scaled_dot_product_attention(torch.nn.Parameter(x), torch.nn.Buffer(x), x)
    assert type(found) is torch.Tensor and far(found, expected) <= 1e-6


class Marked(torch.Tensor):
    pass


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is scaled_dot_product_attention:
            raise RuntimeError(f"told of {func.__name__}")
        return super().__torch_function__(func, types, args, kwargs)


class OtherBias(CausalBias):
    pass


@pytest.mark.parametrize("name", ["query", "key", "value", "attn_mask"])
def test_a_subclass_decides_what_becomes_of_it(name):
    x = torch.randn(4, 4)
    given = {"query": x, "key": x, "value": x, name: x.as_subclass(Marked)}
    found = scaled_dot_product_attention(**given)
    assert type(found) is Marked  # as every function of PyTorch returns one
    assert torch.equal(found.as_subclass(torch.Tensor), scaled_dot_product_attention(**(given | {name: x})))
    with pytest.raises(RuntimeError, match="told of scaled_dot_product_attention"):
        scaled_dot_product_attention(**(given | {name: x.as_subclass(Refusing)}))


def test_a_causal_bias_is_an_attn_mask_of_these_sizes_and_nothing_else():
    x = torch.randn(4, 4)
    other = OtherBias(causal_upper_left(4, 4).variant, 4, 4)
    for call, text in [
            (lambda: scaled_dot_product_attention(x, causal_upper_left(4, 4), x), "key is a CausalBias"),
            (lambda: scaled_dot_product_attention(x, x, x, other), "attn_mask is an OtherBias"),
            (lambda: scaled_dot_product_attention(x, x, x, causal_lower_right(4, 6)),
             "4 queries and 6 keys; there are 4 and 4"),
            (lambda: scaled_dot_product_attention(x, x, x, causal_lower_right(4, 4), is_causal=True),
             "exclude each other")]:
        with pytest.raises((TypeError, ValueError), match=text):
            call()


@pytest.mark.parametrize("mask_shape", [(1, 4, 6), (5, 1, 1, 4, 6), (5, 2, 3, 4, 6), (2, 1, 1, 6)])
def test_masks_of_batches_in_two_dimensions(mask_shape):
    q, k, v = normal(5, 2, 3, 4, 8), normal(5, 2, 3, 6, 8), normal(1, 2, 3, 6, 5)
    mask = normal(*mask_shape)
    ours, theirs = (f(q, k, v, mask) for f in (scaled_dot_product_attention,
                                               F.scaled_dot_product_attention))
    assert far(ours, theirs) <= 1e-12
    for a, b in zip(torch.autograd.grad(ours.square().sum(), (q, k, v, mask)),
                    torch.autograd.grad(theirs.square().sum(), (q, k, v, mask))):
        assert far(a, b) <= 1e-11


@pytest.mark.parametrize("kv_heads, v_heads", [(2, 2), (1, 1), (2, 4), (1, 2), (4, 4)])
@pytest.mark.parametrize("scale", [None, 0.3, 0.0])
def test_heads_are_shared_by_neighbours(kv_heads, v_heads, scale):
    q, k, v = normal(2, 4, 5, 8), normal(2, kv_heads, 7, 8), normal(2, v_heads, 7, 6)
    ours, theirs = (f(q, k, v, scale=scale, enable_gqa=True)
                    for f in (scaled_dot_product_attention, F.scaled_dot_product_attention))
    assert far(ours, theirs) <= 1e-12
    for a, b in zip(torch.autograd.grad(ours.square().sum(), (q, k, v)),
                    torch.autograd.grad(theirs.square().sum(), (q, k, v))):
        assert far(a, b) <= 1e-11


def some_visible():
    visible = torch.rand(2, 1, 4, 5) < 0.6
    visible[0, 0, 1] = False
    return visible


def hiding_bias():
    bias = torch.zeros(4, 5, dtype=torch.float64)
    bias[2:, 1] = -torch.inf
    return bias


GRADCHECKS = {  # options, num_kv_heads
    "nothing": (lambda: dict(), 2),
    "causal": (lambda: dict(is_causal=True), 2),
    "scale": (lambda: dict(scale=0.7), 2),
    "bool": (lambda: dict(attn_mask=some_visible()), 2),
    "bias": (lambda: dict(attn_mask=torch.randn(4, 5, dtype=torch.float64)), 2),
    "hidden by a bias": (lambda: dict(attn_mask=hiding_bias()), 2),
    "shared heads": (lambda: dict(enable_gqa=True, is_causal=True), 1),
}


@pytest.mark.parametrize("case", GRADCHECKS)
def test_gradcheck(case):
    make, kv_heads = GRADCHECKS[case]
    options = make()
    q, k, v = normal(2, 2, 4, 3), normal(2, kv_heads, 5, 3), normal(2, kv_heads, 5, 2)
    assert torch.autograd.gradcheck(
        lambda *t: scaled_dot_product_attention(*t, **options), (q, k, v))


@pytest.mark.parametrize("shape", [(4, 5), (2, 1, 5), (2, 2, 4, 5)])
def test_gradcheck_of_a_mask_that_is_added(shape):
    q, k, v = normal(2, 2, 4, 3), normal(2, 2, 5, 3), normal(2, 2, 5, 2)
    assert torch.autograd.gradcheck(scaled_dot_product_attention, (q, k, v, normal(*shape)))


def test_gradcheck_with_dropout():
    def drawn(*tensors):
        torch.manual_seed(7)
        return scaled_dot_product_attention(*tensors, dropout_p=0.4)
    assert torch.autograd.gradcheck(drawn, (normal(1, 2, 4, 3), normal(1, 2, 5, 3),
                                            normal(1, 2, 5, 2)))


def test_dropout_follows_manual_seed():
    q = torch.randn(1, 2, 64, 8)
    ones = torch.ones(1, 2, 64, 8)
    torch.manual_seed(5)
    first, second = (scaled_dot_product_attention(q, q, ones, dropout_p=0.5) for _ in range(2))
    torch.manual_seed(5)
    assert torch.equal(scaled_dot_product_attention(q, q, ones, dropout_p=0.5), first)
    assert not torch.equal(first, second)
    assert abs(first.mean().item() - 1.0) < 0.1


def test_only_what_needs_a_gradient_gets_one():
    q, k, v = normal(2, 2, 4, 3), normal(2, 2, 5, 3).detach(), normal(2, 2, 5, 2)
    scaled_dot_product_attention(q, k, v).sum().backward()
    assert q.grad is not None and k.grad is None and v.grad is not None
    with torch.no_grad():
        assert not scaled_dot_product_attention(q, k, v).requires_grad


def test_heads_split_by_a_view_are_read_and_merged_by_one():
    packed = torch.randn(2, 50, 3, 4, 16)
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    context = scaled_dot_product_attention(q, k, v, is_causal=True)
    merged = context.transpose(1, 2).flatten(-2)
    assert merged.data_ptr() == context.data_ptr() and merged.is_contiguous()
    expected = scaled_dot_product_attention(q.contiguous(), k.contiguous(), v.contiguous(),
                                            is_causal=True)
    assert torch.equal(context, expected)


def test_shapes_are_made_equal_by_views():
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(1, 2, 7, 8), torch.randn(2, 7, 6)
    for given, flat in zip((q, k, v), _broadcast(q, k, v, None, True)):
        assert flat.dim() == 4 and flat.data_ptr() == given.data_ptr()


def test_first_derivatives_with_create_graph_are_those_without():
    q, k, v = normal(2, 2, 4, 3), normal(2, 2, 5, 3), normal(2, 2, 5, 2)
    plain, kept = (torch.autograd.grad(scaled_dot_product_attention(q, k, v).square().sum(),
                                       (q, k, v), create_graph=kept) for kept in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(plain, kept))
    assert all(b.requires_grad and not a.requires_grad for a, b in zip(plain, kept))


def test_a_tensor_changed_before_backward_is_an_error():
    q, k = normal(2, 2, 4, 3), normal(2, 2, 4, 3).detach()
    context = scaled_dot_product_attention(q, k, k)
    k.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        context.sum().backward()


def test_a_graph_may_live_until_python_ends():
    script = ("import torch, cephalo.torch; q = torch.randn(1, 1, 2, 2, requires_grad=True); "
              "y = cephalo.torch.scaled_dot_product_attention(q, q, q)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("change, error, text", [
    (lambda q: dict(query=q.to("meta")), TypeError, "query is on device meta"),
    (lambda q: dict(attn_mask=torch.ones(4, 4, device="meta")), TypeError, "attn_mask is on device"),
    (lambda q: dict(key=q.double()), TypeError, "must be of one dtype.*float32.*float64"),
    (lambda q: dict(query=q.tolist()), TypeError, "query is a list"),
    (lambda q: dict(query=q[0, 0, 0]), ValueError, r"query has shape \(3,\)"),
    (lambda q: dict(attn_mask=torch.ones(4, 4, dtype=torch.int32)), TypeError, "int32"),
    (lambda q: dict(attn_mask=torch.ones(4, 4), is_causal=True), ValueError, "exclude each other"),
    (lambda q: dict(attn_mask=torch.ones(3, 3)), ValueError, r"\[1, 1, 3, 3\]"),
    (lambda q: dict(key=q[:, :2], value=q[:, :2]), ValueError, "4 heads and key 2.*enable_gqa"),
    (lambda q: dict(key=q[:, :3], enable_gqa=True), ValueError, "4 heads and key 3.*multiple"),
    (lambda q: dict(dropout_p=1.5), ValueError, r"dropout_p \(1.5\) must be in \[0, 1\]"),
    (lambda q: dict(key=q[..., :2]), ValueError, "head_dim"),
])
def test_what_cannot_be_is_named(change, error, text):
    q = torch.randn(2, 4, 4, 3, requires_grad=True)
    with pytest.raises(error, match=text):
        scaled_dot_product_attention(**(dict(query=q, key=q, value=q) | change(q)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_tensor_on_a_gpu_is_refused_by_name():
    q = torch.randn(2, 4, 4, 3)
    with pytest.raises(TypeError, match="key is on device cuda:0"):
        scaled_dot_product_attention(q, q.cuda(), q)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_lowers_what_pytorch_lowers(dtype):
    q, k, v = (torch.randn(2, 4, 16, 32) for _ in range(3))
    mask = torch.randn(16, 16)
    both = (scaled_dot_product_attention, F.scaled_dot_product_attention)
    with torch.autocast("cpu", dtype):
        for arguments in ({}, {"is_causal": True}, {"attn_mask": mask}, {"attn_mask": mask > 0}):
            found, wanted = (f(q, k, v, **arguments) for f in both)
            assert found.dtype == wanted.dtype == dtype
            # PyTorch rounds its weights to the type too; they sum to 1 over values up to 4.
            torch.testing.assert_close(found, wanted, rtol=0, atol=4 * torch.finfo(dtype).eps)
        wide = [t.double() for t in (q, k, v)]
        found, wanted = (f(*wide) for f in both)
    assert found.dtype == wanted.dtype == torch.float64
    torch.testing.assert_close(found, wanted)


ON_PYTORCHS_THREADS = """
import os
import torch
torch.set_num_threads(2)
from cephalo.torch import scaled_dot_product_attention
a = torch.randn(512, 512)
a @ a  # PyTorch's threads are up
before = len(os.listdir("/proc/self/task"))
q = torch.randn(4, 4, 512, 32, requires_grad=True)
scaled_dot_product_attention(q, q, q).sum().backward()
print(len(os.listdir("/proc/self/task")) - before)
child = os.fork()  # which has none of them
if child == 0:
    with torch.no_grad():
        os._exit(0 if scaled_dot_product_attention(q, q, q).shape == q.shape else 1)
print(os.waitpid(child, 0)[1])
"""


def test_pytorchs_threads_compute_and_a_forked_child_starts_others():
    found = subprocess.run([sys.executable, "-c", ON_PYTORCHS_THREADS], capture_output=True, text=True, timeout=120)
    assert found.stdout.split() == ["0", "0"], found.stdout + found.stderr
