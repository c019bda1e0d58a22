"""attend on PyTorch tensors beside F.scaled_dot_product_attention."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.nn.attention.bias import causal_lower_right

import cephalo

BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
# batch, num_heads, num_kv_heads, q_tokens, kv_tokens, head_dim
SHAPES = [(1, 1, 1, 1, 1, 1), (1, 12, 12, 16, 16, 64), (2, 4, 2, 97, 97, 40), (2, 6, 1, 33, 257, 59),
          (1, 2, 2, 300, 300, 128), (3, 2, 2, 1, 513, 64), (2, 3, 3, 65, 31, 111)]


def inputs(shape, dtype):
    batch, heads, kv_heads, q_tokens, kv_tokens, dim = shape
    torch.manual_seed(0)
    return (torch.randn(batch, heads, q_tokens, dim, dtype=torch.float64).to(dtype),
            torch.randn(batch, kv_heads, kv_tokens, dim, dtype=torch.float64).to(dtype),
            torch.randn(batch, kv_heads, kv_tokens, dim, dtype=torch.float64).to(dtype))


def masks(shape):
    """name -> ours, PyTorch's: every row of these sees something."""
    batch, heads, _, q_tokens, kv_tokens, _ = shape
    torch.manual_seed(1)
    visible = torch.rand(batch, 1, q_tokens, kv_tokens) < 0.7
    visible[..., 0] = True
    bias = torch.randn(heads, q_tokens, kv_tokens)
    corner = torch.ones(q_tokens, kv_tokens, dtype=torch.bool).tril(0)
    return {
        "none": (None, None),
        "keep": (cephalo.keep(visible), visible),
        "drop": (cephalo.drop(~visible), visible),
        "causal from the top left": (cephalo.positions("top_left") & cephalo.causal(), corner),
        "bias": (cephalo.bias(bias), bias),
    }


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_attend_is_scaled_dot_product_attention(shape, dtype):
    q, k, v = inputs(shape, dtype)
    for name, (ours, theirs) in masks(shape).items():
        wide = theirs.double() if theirs is not None and theirs.is_floating_point() else theirs
        expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), wide,
                                                  enable_gqa=True)
        context = cephalo.attend(q, k, v, ours)
        assert type(context) is torch.Tensor and context.dtype == dtype
        assert (context.double() - expected).abs().max() <= BOUNDS[dtype], name


def test_strides_are_read_where_they_lie():
    packed = torch.randn(2, 50, 3, 4, 16)
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    assert torch.equal(cephalo.attend(q, k, v),
                       cephalo.attend(q.contiguous(), k.contiguous(), v.contiguous()))
    k = torch.randn(1, 1, 9, 8).expand(2, 4, 9, 8)
    assert torch.equal(cephalo.attend(k, k, k), cephalo.attend(k.clone(), k.clone(), k.clone()))


def test_out_is_written():
    q = torch.randn(2, 4, 9, 8)
    out = torch.zeros_like(q)
    assert cephalo.attend(q, q, q, out=out) is out
    assert torch.equal(out, cephalo.attend(q, q, q))


def test_results_own_their_memory():
    q = torch.randn(2, 4, 9, 8)
    contexts = [cephalo.attend(q, q, q) for _ in range(50)]
    contexts[0].zero_()
    assert all(torch.equal(c, contexts[-1]) for c in contexts[1:])
    contexts[1].requires_grad_().sum().backward()


def test_a_tensor_that_wants_a_gradient_is_refused():
    q = torch.randn(3, 4, requires_grad=True)
    with pytest.raises(TypeError, match="requires grad.*detach"):
        cephalo.attend(q, q, q)
    with torch.no_grad():
        assert cephalo.attend(q, q, q).shape == (3, 4)
    assert cephalo.attend(*[q.detach()] * 3).shape == (3, 4)


@pytest.mark.parametrize("make, named", [
    (lambda q: q.to(torch.complex64), "complex64"),
    (lambda q: q.to(torch.int32), "int32"),
    (lambda q: q.to("meta"), "meta"),
    (lambda q: q.to_sparse(), "sparse"),
])
def test_tensors_of_other_kinds_are_named(make, named):
    q = torch.randn(3, 4)
    with pytest.raises(TypeError, match=f"attend: q is .*{named}"):
        cephalo.attend(make(q), q, q)


class Reversed(torch.Tensor):
    """Stands for its memory backwards, as other subclasses do for a mask or a unit."""


@pytest.mark.parametrize("call, named", [
    (lambda x, plain: cephalo.attend(x, plain, plain), "attend: q is a Reversed"),
    (lambda x, plain: cephalo.attend(plain, plain, plain, out=x), "attend: out is a Reversed"),
    (lambda x, plain: cephalo.keep(x), "keep: t is a Reversed"),
    (lambda x, plain: cephalo.bias(causal_lower_right(4, 4)), "bias: t is a CausalBias"),
    (lambda x, plain: cephalo.attend(plain, plain, plain, causal_lower_right(4, 4)),
     "attend: mask is a CausalBias; a mask says what it means"),
    (lambda x, plain: cephalo.MultiHeadAttention(4, 4, 8, 0.0, 2)(x), "x is a Reversed"),
    (lambda x, plain: cephalo.Embedding(4, 4)(x), "ids is a Reversed"),
])
def test_a_subclass_with_a_meaning_of_its_own_is_refused_by_name(call, named):
    plain = torch.ones(4, 4)
    with pytest.raises(TypeError, match=named):
        call(plain.as_subclass(Reversed), plain)


def test_a_forward_mode_tangent_is_refused_by_name():
    x = torch.randn(4, 4)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones(4, 4))
        with pytest.raises(TypeError, match="attend: v carries a forward-mode tangent"):
            cephalo.attend(x, x, dual)
        with pytest.raises(TypeError, match="MultiHeadAttention: x carries a forward-mode tangent"):
            cephalo.MultiHeadAttention(4, 4, 8, 0.0, 2)(dual)
        cephalo.attend(x, x, x)  # no tangent, no error


def test_parameters_and_buffers_are_tensors():
    x = torch.randn(4, 4)
    given = (torch.nn.Parameter(x, requires_grad=False), torch.nn.Buffer(x), x)
    assert torch.equal(cephalo.attend(*given), cephalo.attend(x, x, x))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_tensor_on_a_gpu_is_refused_by_name():
    q = torch.randn(3, 4)
    with pytest.raises(TypeError, match="attend: k is on device cuda:0"):
        cephalo.attend(q, q.cuda(), q)


def test_layers_take_and_give_tensors():
    layer = cephalo.MultiHeadAttention(8, 8, 16, 0.0, 2, seed=123)
    x = torch.randn(2, 5, 8)
    y, saved = layer.forward_train(x)
    assert type(y) is torch.Tensor and type(layer.trace(x)["weights"]) is torch.Tensor
    assert type(layer.backward(saved, y).dx) is torch.Tensor
    layer.update("out_proj.bias", torch.zeros(8))
    fast = cephalo.FastMultiHeadAttention(8, 2, seed=1)
    assert torch.equal(fast(x, mask=torch.ones(5, 5).tril()), fast(x, mask=cephalo.causal()))
    torch.manual_seed(3)
    assert torch.equal(torch.randn(50), torch.from_numpy(cephalo.TorchGenerator(3).randn((50,))))
    assert cephalo.MultiHeadAttention(8, 8, 16, 0.0, 2, dtype=torch.bfloat16).dtype == "bfloat16"


def test_a_seed_on_a_gpu_is_refused_where_there_is_none():
    q = torch.zeros(1, 1, 2, 8)
    with pytest.raises(ValueError, match="device_seed is int64 .* on host; one int64 number on a GPU is needed"):
        cephalo.attend(q, q, q, dropout=0.5, device_seed=torch.tensor(3))
