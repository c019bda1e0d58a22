"""cephalo.torch.weights, pooled_weights, row_sums and return_weights: what softmax gives, without storing it."""

import subprocess
import sys

import pytest
import torch
from expression import attention, places

import cephalo
import cephalo.torch as ct

P, J = places(6, 6)
BIAS = torch.randn(3, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def inputs():
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(2, 3, 6, 4, dtype=torch.float64, generator=generator, requires_grad=True) for _ in range(3)]


def mask():
    return ct.causal() & ct.window(3, 0) & ct.bias(BIAS)


def expected(q, k):
    return attention(q, k, k, (P >= J) & (P - J <= 3), BIAS, softcap=2.0)[2].detach()


def of_rows(q, k, v):
    return ct.attend(q, k, v, mask(), softcap=2.0, return_weights=True, heads=[2, 0], rows=[5, 1]).weights


def test_chosen_heads_and_rows_are_those_of_softmax():
    q, k, v = inputs()
    found = ct.attend(q, k, v, mask(), softcap=2.0, return_weights=True, heads=[2, 0], rows=[5, 1])
    assert found.lse is None and found.scores is None and found.context.requires_grad
    assert not found.weights.requires_grad
    torch.testing.assert_close(found.weights, expected(q, k)[:, [2, 0]][:, :, [5, 1]])
    found.context.sum().backward()  # and training goes on beside it
    with torch.no_grad():
        assert torch.equal(of_rows(q, k, v), found.weights)
        lse = ct.attend(q, k, v, mask(), softcap=2.0, return_lse=True).lse
    torch.testing.assert_close(ct.weights(q, k, lse, mask(), softcap=2.0), expected(q, k))


def test_a_pooled_map_has_the_largest_and_the_mean_of_its_cells():
    q, k, v = inputs()
    lse = ct.attend(q, k, v, mask(), softcap=2.0, return_lse=True).lse
    found = ct.pooled_weights(q, k, lse, 3, head=1, batch=1, mask=mask(), softcap=2.0)
    cells = expected(q, k)[1, 1].reshape(3, 2, 3, 2).float()
    torch.testing.assert_close(found.largest, cells.amax((1, 3)))
    torch.testing.assert_close(found.mean, cells.mean((1, 3)))
    assert not found.mean.requires_grad


def test_sums_of_rows_are_those_of_the_weights():
    q, k, v = inputs()
    lse = ct.attend(q, k, v, mask(), softcap=2.0, return_lse=True).lse
    found = ct.row_sums(q, k, lse, torch.tensor([1, 2, 1, 2, 3, 1]), mask(), softcap=2.0)
    weights = expected(q, k)
    by_name = dict(zip(cephalo.ROW_SUMS, found.unbind(-1), strict=True))
    torch.testing.assert_close(by_name["entropy"], -torch.xlogy(weights, weights).sum(-1))
    torch.testing.assert_close(by_name["largest"], weights.amax(-1))
    torch.testing.assert_close(by_name["distance"], (weights * (P - J).abs()).sum(-1))


class Looking(torch.nn.Module):
    def forward(self, q, k, v):
        found = ct.attend(q, k, v, mask(), softcap=2.0, return_lse=True, return_weights=True, heads=[1], rows=[3, 4])
        pooled = ct.pooled_weights(q, k, found.lse, 3, 1, mask=mask(), softcap=2.0)
        sums = ct.row_sums(q, k, found.lse, torch.arange(6) % 2, mask(), softcap=2.0)
        return found.context, found.weights, pooled.largest, pooled.mean, sums


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("record", [
    lambda model, x: torch.compile(model, fullgraph=True, backend="aot_eager"),
    lambda model, x: torch.export.export(model, tuple(x)).module(),
    lambda model, x: torch.jit.trace(model, tuple(x)),
], ids=["compile", "export", "jit.trace"])
def test_graphs_look_as_well(record):
    x, model = inputs(), Looking()
    found = record(model, [t.detach() + 1 for t in x])(*x)
    assert [t.requires_grad for t in found] == [True, False, False, False, False]
    for ours, plain in zip(found, model(*x), strict=True):
        assert torch.equal(ours, plain)


def test_transforms_look_as_well():
    x = [t.detach() for t in inputs()]
    model = Looking()
    plain = model(*x)

    def loss(q, k, v):
        found = model(q, k, v)
        return found[0].sum() + sum(t.sum() for t in found[1:]), found[1:]

    gradient, found = torch.func.grad(loss, has_aux=True)(*x)
    for ours, theirs in zip(found, plain[1:], strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(gradient, torch.func.grad(lambda q: model(q, *x[1:])[0].sum())(x[0]))
    _, tangents = torch.func.jvp(lambda q: model(q, *x[1:]), (x[0],), (x[1],))
    assert all(not t.any() for t in tangents[1:]) and tangents[0].any()
    mapped = torch.vmap(model, (0, None, None))(torch.stack([x[0], -x[0]]), x[1], x[2])
    for ours, theirs, other in zip(mapped, plain, model(-x[0], x[1], x[2]), strict=True):
        torch.testing.assert_close(ours, torch.stack([theirs, other]))


@pytest.mark.parametrize("op, asked", [("weights", ([1], [2, 3])), ("pooled_weights", (3, 1, 0)),
                                       ("row_sums", (torch.arange(6),))])
def test_operators_are_as_pytorch_wants_them(op, asked):
    q, k, v = (t.detach() for t in inputs())
    lse = ct.attend(q, k, v, return_lse=True).lse
    torch.library.opcheck(getattr(torch.ops.cephalo, op).default,
                          (q, k, lse, [torch.tensor([6, 3])], "causal() | lengths", None, None, *asked))


def test_memory_is_that_of_the_answer():
    """4 rows and a map at 16,384 tokens, where the matrix would be 1 GiB; in a process that has had nothing."""
    code = """
import resource, torch, cephalo.torch as ct
mask = ct.causal() & ct.window(255, 0)
small, q = torch.randn(1, 1, 64, 16, requires_grad=True), torch.randn(1, 1, 16384, 16, requires_grad=True)
peaks = []
for x in (small, q):
    found = ct.attend(x, x, x, mask, return_lse=True, return_weights=True, rows=[0, 1, 40, x.shape[2] - 1])
    ct.pooled_weights(x, x, found.lse, 64, 0, mask=mask)
    found.context.sum().backward()
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(*found.weights.shape, peaks[1] - peaks[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *shape, grown = map(int, done.stdout.split())
    assert shape == [1, 1, 4, 16384]
    assert grown < 64 << 10
