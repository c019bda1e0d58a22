"""cephalo.torch.attend: every part of a mask, beside the same written out in PyTorch's operations."""

import pytest
import torch
from expression import attention, places
from torch.nn.attention.bias import causal_lower_right

import cephalo
import cephalo.torch as ct

BATCH, HEADS, KV_HEADS, Q, KV = 2, 4, 2, 5, 7


def inputs(q_tokens=Q, kv_tokens=KV, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(*shape, dtype=dtype, generator=generator, requires_grad=True)
            for shape in ((BATCH, HEADS, q_tokens, 8), (BATCH, KV_HEADS, kv_tokens, 8),
                          (BATCH, KV_HEADS, kv_tokens, 6))]


def drawn(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


def per_sequence(numbers):
    return torch.tensor(numbers).reshape(-1, 1, 1, 1)


P, J = places(Q, KV)
I = torch.arange(Q)[:, None]
SLOPES = torch.tensor(cephalo.alibi_slopes(HEADS))
ALIBI = -SLOPES.double().reshape(-1, 1, 1) * (P - J).abs()
SOME = drawn(BATCH, 1, Q, KV) > -0.5
Q_IDS = torch.tensor([[0, 0, 1, 1, 2], [0, 1, 1, -1, 3]])
KV_IDS = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [1, 1, 0, 0, -1, -1, 3]], dtype=torch.int32)
OWN = (Q_IDS[:, :, None] == KV_IDS[:, None]) & (Q_IDS[:, :, None] >= 0)
BY_LENGTHS, _ = places(Q, KV, torch.tensor([6, 4]) - torch.tensor([5, 2]))
REAL = (J < per_sequence([6, 4])) & (I < per_sequence([5, 2]))

# name -> the mask, what it leaves visible, what it adds
MASKS = {
    "none": (lambda: None, None, None),
    "causal": (lambda: ct.causal(), P >= J, None),
    "causal, top left": (lambda: ct.positions("top_left") & ct.causal(), J <= I, None),
    "causal, shifted": (lambda: ct.positions("bottom_right", -1) & ct.causal(), P - 1 >= J, None),
    "a prefix": (lambda: ct.causal(3), (P >= J) | (J < 3), None),
    "prefixes of sequences": (lambda: ct.causal(torch.tensor([1, 5])), (P >= J) | (J < per_sequence([1, 5])), None),
    "window": (lambda: ct.window(2, 1), (P - J <= 2) & (J - P <= 1), None),
    "window without a bound": (lambda: ct.window(ct.unlimited, 0), P >= J, None),
    "keep": (lambda: ct.keep(SOME), SOME, None),
    "drop": (lambda: ct.drop(SOME[0, 0].int()), ~SOME[0, 0], None),
    "bias of heads": (lambda: ct.bias(drawn(HEADS, Q, KV)), None, drawn(HEADS, Q, KV)),
    "lengths of keys": (lambda: ct.lengths(torch.tensor([6, 4])), J < per_sequence([6, 4]), None),
    "lengths in a list": (lambda: ct.lengths([6, 4]), J < per_sequence([6, 4]), None),
    "lengths and causal": (lambda: ct.causal() & ct.lengths(torch.tensor([6, 4]), torch.tensor([5, 2])),
                           REAL & (BY_LENGTHS >= J), None),
    "documents": (lambda: ct.documents(Q_IDS, KV_IDS), OWN[:, None], None),
    "documents of the first": (lambda: ct.documents(Q_IDS[0].tolist(), KV_IDS[0]), OWN[0], None),
    "alibi": (lambda: ct.alibi(SLOPES), None, ALIBI),
    "alibi in a list": (lambda: ct.alibi(ct.alibi_slopes(HEADS)), None, ALIBI),
    "cephalo's own": (lambda: cephalo.causal() & cephalo.window(2, 0) & cephalo.lengths([6, 4], [5, 2]),
                      REAL & (BY_LENGTHS >= J) & (BY_LENGTHS - J <= 2), None),
    "several": (lambda: cephalo.causal() & ct.keep(SOME) & ct.window(3, 0) & ct.alibi(SLOPES) &
                ct.bias(drawn(1, HEADS, 1, KV)), SOME & (P >= J) & (P - J <= 3), ALIBI + drawn(1, HEADS, 1, KV)),
}


def loss(context, lse=None):
    total = context.sin().sum()
    return total if lse is None else total + torch.where(lse.isinf(), 0.0, lse).cos().sum()


@pytest.mark.parametrize("softcap", [None, 0.7])
@pytest.mark.parametrize("name", MASKS)
def test_a_mask_means_what_it_says(name, softcap):
    mask, visible, bias = MASKS[name]
    x = inputs()
    found = ct.attend(*x, mask(), softcap=softcap, scale=0.4, return_lse=True, return_weights=True)
    expected = attention(*x, visible, bias, softcap=softcap, scale=0.4)
    for ours, theirs in zip(found[:3], expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(loss(*found[:2]), x),
                               torch.autograd.grad(loss(*expected[:2]), x), rtol=1e-11, atol=1e-12)
    alone = ct.attend(*x, mask(), softcap=softcap, scale=0.4)
    assert torch.equal(alone, found.context)
    torch.testing.assert_close(torch.autograd.grad(loss(alone), x),
                               torch.autograd.grad(loss(attention(*x, visible, bias, softcap=softcap, scale=0.4)[0]),
                                                   x), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shape", [(Q, KV), (HEADS, 1, KV), (BATCH, 1, Q, KV)])
def test_a_bias_has_a_gradient(shape):
    x, bias = inputs(), drawn(*shape).requires_grad_()
    mask = ct.causal() & ct.bias(bias) & ct.keep(SOME) & ct.bias(2 * bias)
    found = torch.autograd.grad(loss(*ct.attend(*x, mask, return_lse=True)[:2]), bias)
    expected = torch.autograd.grad(loss(*attention(*x, SOME & (P >= J), 3 * bias)[:2]), bias)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


def test_lower_ranks_are_one_batch_and_one_head():
    q, k, v = (t.detach() for t in inputs())
    mask = ct.causal() & ct.lengths([6])
    whole = ct.attend(q[:1], k[:1], v[:1], mask, return_lse=True, return_weights=True, rows=[1])
    found = ct.attend(q[0], k[0], v[0], mask, return_lse=True, return_weights=True, rows=[1])
    for one, of_batch in zip(found[:3], whole[:3], strict=True):
        assert torch.equal(one, of_batch[0])
    head = ct.attend(q[0, 0], k[0, 0], v[0, 0], mask, return_lse=True, return_weights=True, rows=[1])
    for one, of_batch in zip(head[:3], whole[:3], strict=True):
        assert torch.equal(one, of_batch[0, 0])


def test_dropout_follows_pytorchs_generator():
    x = inputs()

    def dropped():
        torch.manual_seed(5)
        return ct.attend(*x, ct.causal(), dropout=0.5)

    assert torch.equal(dropped(), dropped()) and not torch.equal(dropped(), ct.attend(*x, ct.causal(), dropout=0.5))
    torch.manual_seed(5)
    found = ct.attend(*x, ct.causal(), dropout=0.5, return_lse=True, return_weights=True)
    assert torch.equal(found.context, dropped())
    torch.testing.assert_close(found.weights, attention(*x, P >= J)[2])  # as they were before


def test_lse_alone_has_derivatives_and_batches_of_them():
    x = inputs()
    assert torch.autograd.gradcheck(lambda *x: ct.attend(*x, ct.window(2, 1), return_lse=True)[:2], x,
                                    check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(lambda *x: ct.attend(*x, ct.window(2, 1), return_lse=True)[:2], x)


def compiled(f):
    return torch.compile(f, fullgraph=True, backend="aot_eager")


@pytest.mark.parametrize("part, first, then", [
    (lambda t: ct.lengths(t), torch.tensor([7, 3]), torch.tensor([2, 6])),
    (lambda t: ct.lengths([7, 7], t), torch.tensor([5, 3]), torch.tensor([2, 5])),
    (lambda t: ct.causal(t), torch.tensor([7, 3]), torch.tensor([2, 6])),
    (lambda t: ct.documents(t, KV_IDS), Q_IDS, Q_IDS.flip(1)),
    (lambda t: ct.alibi(t), SLOPES, SLOPES * 2),
    (lambda t: ct.keep(t), SOME, ~SOME),
    (lambda t: ct.bias(t), drawn(Q, KV), -drawn(Q, KV)),
])
def test_numbers_of_a_mask_are_inputs_of_a_graph(part, first, then):
    x = [t.detach() for t in inputs()]

    class Model(torch.nn.Module):
        def forward(self, q, k, v, t):
            return ct.attend(q, k, v, ct.window(6, 6) & part(t)) * 2

    model = Model()
    assert not torch.equal(model(*x, first), model(*x, then))
    torch.compiler.reset()
    with torch.compiler.set_stance("default"):
        run = compiled(model)
        run(*x, first)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert torch.equal(run(*x, then), model(*x, then))
    assert torch.equal(torch.export.export(model, (*x, first)).module()(*x, then), model(*x, then))
    assert torch.equal(torch.jit.trace(model, (*x, first))(*x, then), model(*x, then))


def test_a_mask_made_outside_of_a_graph_is_guarded():
    x = [t.detach() for t in inputs()]
    run = compiled(lambda q, k, v, mask: ct.attend(q, k, v, mask))
    for mask in (cephalo.causal(), cephalo.window(1, 0), ct.causal(), ct.window(1, 0) & cephalo.lengths([7, 3])):
        assert torch.equal(run(*x, mask), ct.attend(*x, mask))


def test_vmap_gives_each_its_own_numbers_of_a_mask():
    q, k, v = (t.detach() for t in inputs())
    kv_lengths, slopes = torch.tensor([[7, 3], [2, 6], [5, 5]]), torch.stack([SLOPES, 2 * SLOPES, SLOPES])

    def one(q, kv_length, slopes):
        return ct.attend(q, k, v, ct.lengths(kv_length) & ct.alibi(slopes))

    queries = torch.stack([q, -q, 2 * q])
    expected = torch.stack([one(*of) for of in zip(queries, kv_lengths, slopes)])
    torch.testing.assert_close(torch.vmap(one)(queries, kv_lengths, slopes), expected)
    expected = torch.stack([one(x, kv_lengths[1], SLOPES) for x in queries])
    torch.testing.assert_close(torch.vmap(one, (0, None, None))(queries, kv_lengths[1], SLOPES), expected)


def test_shapes_alone_are_computed_on_meta():
    q, k, v = (t.to("meta") for t in inputs())
    found = ct.attend(q, k, v, ct.causal() & ct.lengths([7, 3]), dropout=0.5, return_lse=True, return_weights=True,
                      rows=[1, 2])
    assert [t.shape for t in found[:3]] == [(BATCH, HEADS, Q, 6), (BATCH, HEADS, Q), (BATCH, HEADS, 2, KV)]
    assert all(t.is_meta for t in found[:3]) and ct.attend(q, k, v).shape == (BATCH, HEADS, Q, 6)


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, len(args)


def test_a_subclass_decides_by_its_torch_function():
    q, k, v = inputs()
    assert ct.attend(q, k.as_subclass(Tagged), v, ct.causal()) == ("attend", 11)


@pytest.mark.parametrize("call, error, named", [
    (lambda q: ct.attend(q.numpy(), q, q), TypeError, "attend: q is of type ndarray"),
    (lambda q: ct.attend(q, q.to("meta"), q), TypeError, "attend: k is on device meta"),
    (lambda q: ct.attend(q, q, q[0]), ValueError, "attend: q .* must have the same rank"),
    (lambda q: ct.attend(q, q, q, q), TypeError, "attend: mask is of type Tensor; .*keep"),
    (lambda q: ct.attend(q, q, q, cephalo.keep(q > 0)), TypeError, "mask's keep .* cephalo.torch.keep"),
    (lambda q: ct.attend(q, q, q, heads=[1]), ValueError, "return_weights=True"),
    (lambda q: ct.attend(q, q, q, dropout=1.5), ValueError, r"dropout \(1.5\)"),
    (lambda q: ct.attend(q, q, q, ct.keep(torch.ones(3, 3, dtype=torch.bool))), ValueError, "does not broadcast"),
    (lambda q: ct.attend(q, q, q, ct.lengths([1, 2, 3])), ValueError, "3 entries, batch is 2"),
    (lambda q: ct.attend(q, q, q, ct.lengths([1, 2]) & ct.lengths([1, 2])), ValueError, "two lengths"),
    (lambda q: ct.attend(q, q, q, return_weights=True, rows=[7]), ValueError, "weights: row 7"),
    (lambda q: ct.window(-1, 0), ValueError, r"window: left \(-1\)"),
    (lambda q: ct.positions("middle"), ValueError, "bottom_right or top_left"),
    (lambda q: ct.keep(q), TypeError, "keep: t is of dtype torch.float32"),
    (lambda q: ct.bias(q.to("meta")), TypeError, "bias: t is on device meta"),
    (lambda q: ct.bias(causal_lower_right(5, 5)), TypeError, "bias: t is of type CausalBias"),
    (lambda q: ct.lengths(q[0, 0]), TypeError, "lengths: kv is of dtype torch.float32"),
    (lambda q: ct.documents(torch.zeros(1, 2, 3, dtype=torch.int64)), ValueError, "documents: ids has shape"),
    (lambda q: ct.alibi(q[0, 0, 0].clone().requires_grad_()), ValueError, "alibi: slopes have no derivatives"),
])
def test_mistakes_are_named(call, error, named):
    with pytest.raises(error, match=named):
        call(torch.randn(2, 4, 5, 8))


def test_a_mask_draws_itself_and_says_its_parts():
    mask = cephalo.causal() & ct.lengths([3, 2], [3, 2]) & ct.keep(SOME)
    assert repr(mask) == "causal() & lengths([2], [2]) & keep([2, 1, 5, 7])"
    assert (ct.causal() & ct.lengths([3, 2])).draw(3, 3, batch=1) == \
        (cephalo.causal() & cephalo.lengths([3, 2])).draw(3, 3, batch=1)


def test_autocast_lowers_what_is_computed_with():
    q, k, v = (t.detach().float() for t in inputs())
    mask = ct.causal() & ct.bias(drawn(Q, KV).float())
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = ct.attend(q, k, v, mask, return_lse=True, return_weights=True)
        beside = ct.weights(q, k, found.lse, mask)
    lowered = ct.attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), mask, return_lse=True, return_weights=True)
    for ours, theirs in zip(found[:3], lowered[:3], strict=True):
        assert torch.equal(ours, theirs)
    assert found.context.dtype == torch.bfloat16 and torch.equal(beside, found.weights)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_train_with_lse_and_a_bias(dtype):
    x, bias = inputs(dtype=dtype), drawn(HEADS, Q, KV).float().requires_grad_()
    wide = [t.detach().double().requires_grad_() for t in (*x, bias)]
    found = ct.attend(*x, ct.causal() & ct.bias(bias), return_lse=True)
    assert found.context.dtype == dtype and found.lse.dtype == torch.float32
    expected = attention(*wide[:3], P >= J, wide[3])
    gradients = torch.autograd.grad(loss(found.context.double(), found.lse.double()), (*x, bias))
    for ours, theirs in zip(gradients, torch.autograd.grad(loss(*expected[:2]), wide), strict=True):
        bound = 8 * torch.finfo(dtype).eps * theirs.abs().max()
        assert (ours.double() - theirs).abs().max() <= bound
