"""Sequences of different lengths without padding: cu_seqlens, nested tensors; and a cache that fills up."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import cephalo
import cephalo.torch as ct

LENGTHS, KV_LENGTHS = (3, 0, 7, 4), (5, 2, 7, 9)
HEADS, KV_HEADS = 4, 2


def starts(lengths):
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


CU, CU_K = starts(LENGTHS), starts(KV_LENGTHS)


def packed(q_total, kv_total):
    generator = torch.Generator().manual_seed(8)
    return [torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)
            for shape in ((q_total, HEADS, 8), (kv_total, KV_HEADS, 8), (kv_total, KV_HEADS, 6))]


def one_by_one(q, k, v, mask, cu_q, cu_k, **options):
    """attend, called for each sequence by itself."""
    found = []
    for n in range(len(cu_q) - 1):
        rows, keys = slice(cu_q[n], cu_q[n + 1]), slice(cu_k[n], cu_k[n + 1])
        of = [t.transpose(0, 1) for t in (q[rows], k[keys], v[keys])]
        found.append(ct.attend(*of, mask, return_lse=True, **options)[:2])
    contexts, lses = zip(*found)
    return torch.cat(contexts, 1).transpose(0, 1), torch.cat(lses, 1)


def loss(context, lse):
    return context.sin().sum() + torch.where(lse.isinf(), 0.0, lse).cos().sum()


MASKS = {"none": None, "causal": ct.causal(), "window": ct.causal() & ct.window(2, 0),
         "alibi": ct.alibi(ct.alibi_slopes(HEADS)), "prefix": ct.causal(2), "cephalo's": cephalo.causal()}


@pytest.mark.parametrize("cu_k", [CU, CU_K], ids=["alike", "otherwise"])
@pytest.mark.parametrize("name", MASKS)
def test_packed_sequences_are_attended_to_one_by_one(name, cu_k):
    x = packed(int(CU[-1]), int(cu_k[-1]))
    found = ct.attend(*x, MASKS[name], softcap=3.0, return_lse=True, cu_seqlens=CU,
                      cu_seqlens_k=None if cu_k is CU else cu_k)
    expected = one_by_one(*x, MASKS[name], CU, cu_k, softcap=3.0)
    torch.testing.assert_close(found[:2], expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(loss(*found[:2]), x), torch.autograd.grad(loss(*expected), x),
                               rtol=1e-11, atol=1e-12)
    alone = ct.attend(*x, MASKS[name], softcap=3.0, cu_seqlens=CU, cu_seqlens_k=cu_k)
    torch.testing.assert_close(alone, found.context)


@pytest.mark.parametrize("mask", [ct.causal(), ct.causal(1)], ids=["documents", "padded"])
def test_tokens_behind_the_last_sequence_see_nothing(mask):
    q, k, v = (t.detach() for t in packed(20, 20))
    found = ct.attend(q, k, v, mask, return_lse=True, cu_seqlens=CU)
    torch.testing.assert_close(found.context[:14], ct.attend(q[:14], k[:14], v[:14], mask, cu_seqlens=CU))
    assert not found.context[14:].any() and (found.lse[:, 14:] == -torch.inf).all()


def test_weights_of_packed_rows_lie_in_their_own_sequence():
    q, k, v = (t.detach() for t in packed(14, 14))
    found = ct.attend(q, k, v, ct.causal(), return_weights=True, heads=[3], rows=[4, 13], cu_seqlens=CU).weights
    assert found.shape == (1, 2, 14)
    torch.testing.assert_close(found.sum(-1), torch.ones(1, 2, dtype=torch.float64))
    assert found[0, 0].nonzero().flatten().tolist() == [3, 4]
    assert found[0, 1].nonzero().flatten().tolist() == [10, 11, 12, 13]


def test_cu_seqlens_are_an_input_of_a_graph():
    x = [t.detach() for t in packed(14, 14)]

    class Model(torch.nn.Module):
        def forward(self, q, k, v, cu_seqlens):
            return ct.attend(q, k, v, ct.causal(), cu_seqlens=cu_seqlens)

    other = starts((1, 6, 2, 5))
    expected = Model()(*x, other)
    run = torch.compile(Model(), fullgraph=True, backend="aot_eager")
    run(*x, CU)
    assert torch.equal(run(*x, other), expected)
    assert torch.equal(torch.export.export(Model(), (*x, CU)).module()(*x, other), expected)


LONGEST = {"max_seqlen": max(LENGTHS), "max_seqlen_k": max(KV_LENGTHS)}


@pytest.mark.parametrize("room", [0, 3], ids=["as long", "longer"])
@pytest.mark.parametrize("name", ["causal", "alibi", "prefix"])
def test_a_graph_pads_where_it_is_told_how_far(name, room):
    """Gradients too, with numbers that were not there when it was compiled."""
    def run(q, k, v, cu, cu_k):
        found = ct.attend(q, k, v, MASKS[name], return_lse=True, cu_seqlens=cu, cu_seqlens_k=cu_k,
                          max_seqlen=7 + room, max_seqlen_k=9 + room)
        return found.context, found.lse

    torch.compiler.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    for lengths, kv_lengths in ((LENGTHS, KV_LENGTHS), ((1, 6, 7, 0), (9, 6, 7, 1))):
        x = packed(14, 23)
        cu, cu_k = starts(lengths), starts(kv_lengths)
        found, expected = compiled(*x, cu, cu_k), one_by_one(*x, MASKS[name], cu, cu_k)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(torch.autograd.grad(loss(*found), x), torch.autograd.grad(loss(*expected), x),
                                   rtol=1e-11, atol=1e-12)


def test_sequences_of_no_tokens_at_all_give_nothing():
    q, k, v = (t.detach() for t in packed(5, 5))
    found = ct.attend(q, k, v, ct.causal(1), return_lse=True, cu_seqlens=torch.zeros(3, dtype=torch.int32))
    assert not found.context.any() and (found.lse == -torch.inf).all()


def on_gpu(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype, device="cuda")


def alone(q, mask):
    """One sequence, that is not packed."""
    return ct.attend(*[q.transpose(0, 1)[None]] * 3, mask)[0].transpose(0, 1)


@pytest.mark.parametrize("call", [
    lambda q, cu, other: ct.attend(q, q, q, ct.causal(), cu_seqlens=cu),
    lambda q, cu, other: ct.attend(q, q, q, cu_seqlens=cu, cu_seqlens_k=other),
    lambda q, cu, other: ct.attend(q, q, q, ct.causal(), cu_seqlens=cu, cu_seqlens_k=other, **LONGEST),
    lambda q, cu, other: ct.attend(q, q, q, ct.causal(1), cu_seqlens=cu, max_seqlen=14),
    lambda q, cu, other: ct.attend(q, q, q, dropout=0.5, cu_seqlens=cu),
    lambda q, cu, other: alone(q, ct.lengths(cu[:1]) & ct.causal(cu[:1])),
    lambda q, cu, other: alone(q, ct.documents(on_gpu(14, dtype=torch.int32))),
    lambda q, cu, other: alone(q, ct.alibi(on_gpu(HEADS, dtype=torch.float32))),
])
def test_numbers_of_a_gpu_are_not_looked_at(call):
    """Tensors without numbers stand for those of a GPU: to ask for one is an error."""
    with FakeTensorMode():
        cu = [on_gpu(5, dtype=torch.int32) for _ in range(2)]
        assert call(on_gpu(14, HEADS, 8), *cu).shape == (14, HEADS, 8)


def nested(values, cu_seqlens):
    """[total, heads, dim] -> [batch, heads, tokens of each, dim]"""
    return torch.nested.nested_tensor_from_jagged(values, cu_seqlens).transpose(1, 2)


@pytest.mark.parametrize("cu_k", [CU, CU_K], ids=["alike", "otherwise"])
def test_nested_tensors_give_nested_tensors_with_gradients(cu_k):
    x = packed(int(CU[-1]), int(cu_k[-1]))
    cu_q, cu_k = CU.long(), CU.long() if cu_k is CU else cu_k.long()
    q, k, v = nested(x[0], cu_q), nested(x[1], cu_k), nested(x[2], cu_k)
    found = ct.attend(q, k, v, ct.causal(), return_lse=True)
    assert found.context.shape[:3] == q.shape[:3] and found.lse.shape == q.shape[:3]
    context, lse = found.context.transpose(1, 2).values(), found.lse.transpose(1, 2).values().t()
    expected = ct.attend(*x, ct.causal(), return_lse=True, cu_seqlens=cu_q, cu_seqlens_k=cu_k)[:2]
    torch.testing.assert_close((context, lse), expected)
    torch.testing.assert_close(torch.autograd.grad(loss(context, lse), x), torch.autograd.grad(loss(*expected), x))


def test_a_nested_layer_trains_as_its_sequences_do():
    torch.manual_seed(0)
    layer = torch.nn.Linear(16, 48).double()
    texts = [torch.randn(n, 16, dtype=torch.float64) for n in (3, 1, 6)]

    def heads(x):
        return [t.unflatten(-1, (4, 4)).transpose(-3, -2) for t in layer(x).chunk(3, -1)]

    together = torch.nested.nested_tensor(texts, layout=torch.jagged)
    context = ct.attend(*heads(together), ct.causal())
    assert [t.shape for t in context.unbind()] == [(4, n, 4) for n in (3, 1, 6)]
    of_nested = torch.autograd.grad(context.values().sin().sum(), layer.parameters())
    alone = sum(ct.attend(*heads(text), ct.causal()).sin().sum() for text in texts)
    torch.testing.assert_close(of_nested, torch.autograd.grad(alone, layer.parameters()))


def test_a_graph_takes_nested_tensors():
    x = packed(14, 14)

    def run(q, k, v):
        offsets = CU.long()
        return ct.attend(*(nested(t, offsets) for t in (q, k, v)), ct.causal()).transpose(1, 2).values()

    found = torch.compile(run, fullgraph=True, backend="aot_eager")(*x)
    torch.testing.assert_close(found, run(*x))
    torch.testing.assert_close(torch.autograd.grad(found.sin().sum(), x), torch.autograd.grad(run(*x).sin().sum(), x))


@pytest.mark.parametrize("name", ["causal", "prefix"])
def test_transforms_of_packed_sequences(name):
    q, k, v = (t.detach() for t in packed(14, 14))

    def run(q, k, v):
        return ct.attend(q, k, v, MASKS[name], cu_seqlens=CU)

    def one(q, k, v):
        return one_by_one(q, k, v, MASKS[name], CU, CU)[0]

    queries = torch.stack([q, -q])
    expected = torch.stack([one(q, k, v), one(-q, k, v)])
    torch.testing.assert_close(torch.vmap(run, (0, None, None))(queries, k, v), expected)
    gradient, expected = (torch.func.grad(lambda k, f=f: f(q, k, v).sin().sum())(k) for f in (run, one))
    torch.testing.assert_close(gradient, expected)
    moved, expected = (torch.func.jvp(lambda v, f=f: f(q, k, v), (v,), (v + 1,)) for f in (run, one))
    torch.testing.assert_close(moved, expected)


def test_a_graph_refuses_to_pad_by_name():
    x = [t.detach() for t in packed(14, 23)]
    run = torch.compile(lambda q, k, v, cu_q, cu_k: ct.attend(q, k, v, ct.causal(), cu_seqlens=cu_q, cu_seqlens_k=cu_k),
                        fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="a compiled graph cannot have cu_seqlens"):
        run(*x, CU, CU_K)


@pytest.mark.parametrize("call, error, named", [
    (lambda q, n: ct.attend(n, n, nested(q, torch.tensor([0, 14]))), ValueError, "k and v must have sequences"),
    (lambda q, n: ct.attend(q[None], q[None], q[None], cu_seqlens=CU), ValueError, r"\[total, num_heads"),
    (lambda q, n: ct.attend(q, q, q, cu_seqlens=[0, 14]), TypeError, "cu_seqlens is of type list"),
    (lambda q, n: ct.attend(q, q, q, cu_seqlens=CU.float()), ValueError, "cu_seqlens must be int32 or int64"),
    (lambda q, n: ct.attend(q, q, q, cu_seqlens=CU + 1), ValueError, "cu_seqlens must begin with 0"),
    (lambda q, n: ct.attend(q, q, q, cu_seqlens=CU, cu_seqlens_k=CU * 2), ValueError, "cu_seqlens_k must .* of k"),
    (lambda q, n: ct.attend(q, q, q, cu_seqlens=starts((7, 7)), cu_seqlens_k=starts((5, 5, 4))), ValueError,
     "cu_seqlens has 2 sequences and cu_seqlens_k has 3"),
    (lambda q, n: ct.attend(q, q, q, ct.causal(), cu_seqlens=starts((7, 7)), cu_seqlens_k=starts((14,))), ValueError,
     "cu_seqlens has 2 sequences and cu_seqlens_k has 1"),
    (lambda q, n: ct.attend(q[:12], q, q, ct.causal(), cu_seqlens=starts((5, 7))), ValueError,
     "packed as queries are, but q has 12 tokens and k has 14"),
    (lambda q, n: ct.attend(q, q[:12], q[:12], ct.causal(2), cu_seqlens=starts((5, 9))), ValueError,
     "packed as queries are, but q has 14 tokens and k has 12"),
    (lambda q, n: ct.attend(q, q, q[:12], ct.causal(2), cu_seqlens=CU), ValueError, "k has 14 tokens and v has 12"),
    (lambda q, n: ct.attend(q, q, q[:12], cu_seqlens=CU), ValueError, "k has 14 tokens and v has 12"),
    (lambda q, n: ct.attend(nested(q, torch.tensor([0, 14])), n, n), ValueError, "q has 1 sequences, k and v have 4"),
    (lambda q, n: ct.attend(q, q, q, cu_seqlens_k=CU), ValueError, "cu_seqlens_k, .* need cu_seqlens"),
    (lambda q, n: ct.attend(q, q, q, max_seqlen=3), ValueError, "max_seqlen and .* need cu_seqlens"),
    (lambda q, n: ct.attend(q, q, q, cu_seqlens=CU, max_seqlen=6), ValueError,
     "max_seqlen is 6; the longest sequence has 7 tokens"),
    (lambda q, n: ct.attend(q, q, q, ct.lengths([3]), cu_seqlens=CU), ValueError, "lengths cannot be joined"),
    (lambda q, n: ct.attend(q, q, q, ct.causal(1) & ct.keep(torch.ones(14, 14).bool()), cu_seqlens=CU), ValueError,
     r"keep\(t\) has no place"),
    (lambda q, n: ct.attend(q, q, q, ct.causal(1), return_weights=True, cu_seqlens=CU), ValueError,
     "weights cannot be returned"),
    (lambda q, n: ct.attend(n, n, q), TypeError, "v is not"),
    (lambda q, n: ct.attend(*[n.transpose(1, 2)] * 3), ValueError, "with tokens jagged"),
    (lambda q, n: ct.attend(n, n, n, return_weights=True), ValueError, "weights of nested tensors"),
    (lambda q, n: ct.attend(n, n, n, cu_seqlens=CU), ValueError, "offsets of their own"),
    (lambda q, n: ct.attend(*[torch.nested.nested_tensor([q, q])] * 3), TypeError, "layout torch.strided"),
])
@pytest.mark.filterwarnings("ignore")
def test_mistakes_are_named(call, error, named):
    q = torch.randn(14, 4, 8)
    with pytest.raises(error, match=named):
        call(q, nested(q, CU.long()))


def test_keys_behind_the_last_sequence_are_looked_at_by_nobody():
    """Packed by the same numbers, but in a tensor of their own, which may be longer."""
    q, k, v = (t.detach() for t in packed(14, 17))
    found = ct.attend(q, k, v, ct.causal(), cu_seqlens=CU, cu_seqlens_k=CU.clone())
    torch.testing.assert_close(found, ct.attend(q, k[:14], v[:14], ct.causal(), cu_seqlens=CU))


def test_decoding_with_a_cache_that_fills_up_equals_the_whole_pass():
    """A static cache: memory for the longest text, and how many tokens of each sequence are in it."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, heads, 9, 8, generator=generator) for heads in (4, 2, 2))
    whole = ct.attend(q, k, v, ct.causal())
    keys, values = torch.full((2, 2, 16, 8), torch.nan), torch.full((2, 2, 16, 8), torch.nan)

    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=False)
    def step(q, filled):
        return ct.attend(q, keys, values, ct.causal() & ct.lengths(filled))

    at = 0
    for new in (4, 2, 1, 1, 1):
        keys[:, :, at:at + new], values[:, :, at:at + new] = k[:, :, at:at + new], v[:, :, at:at + new]
        filled = torch.tensor([at + new, at + new])
        mask = ct.causal() & ct.lengths(filled)
        torch.testing.assert_close(ct.attend(q[:, :, at:at + new], keys, values, mask),
                                   whole[:, :, at:at + new])
        if new == 1:
            torch.testing.assert_close(step(q[:, :, at:at + 1], filled), whole[:, :, at:at + 1])
        at += new


def test_sequences_of_a_cache_may_be_filled_differently():
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 2, 9, 8, generator=generator) for _ in range(3))
    filled = torch.tensor([9, 5])
    last = torch.stack([q[0, :, 8:], q[1, :, 4:5]])
    found = ct.attend(last, k, v, ct.causal() & ct.lengths(filled))
    for n, length in enumerate(filled.tolist()):
        whole = ct.attend(q[n, :, :length], k[n, :, :length], v[n, :, :length], ct.causal())
        torch.testing.assert_close(found[n], whole[:, -1:])
