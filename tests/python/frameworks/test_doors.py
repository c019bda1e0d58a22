"""Everything PyTorch does with a function, done with attention: values, not only that it runs.

Each transform is asked of cephalo's function and of PyTorch's, whose math kernel has every derivative.
"""

import sys

import pytest
import torch
import torch.nn.functional as F
from expression import attention, places
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import cephalo
import cephalo.torch as ct
from cephalo.torch import scaled_dot_product_attention

MASK = torch.randn(1, 3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
MASKS = {"none": {}, "causal": {"is_causal": True}, "keep": {"attn_mask": MASK > -1},
         "bias": {"attn_mask": MASK}}

P, J = places(5, 5)
REAL = (J < torch.tensor([5, 3]).reshape(2, 1, 1, 1)) & (P < torch.tensor([4, 3]).reshape(2, 1, 1, 1))
BY_LENGTHS, _ = places(5, 5, torch.tensor([5, 3]) - torch.tensor([4, 3]))
IDS = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 1, -1]])
OWN = ((IDS[:, :, None] == IDS[:, None]) & (IDS >= 0)[:, None])[:, None]
SLOPES = torch.tensor([0.5, 0.25, 1.0])
ALIBI = -SLOPES.double().reshape(3, 1, 1) * (P - J).abs()
PREFIX = torch.tensor([0, 3]).reshape(2, 1, 1, 1)
# name -> attend's arguments, the expression's
ATTENDS = {
    "lengths": ({"mask": ct.causal() & ct.lengths(torch.tensor([5, 3]), torch.tensor([4, 3]))},
                {"visible": REAL & (BY_LENGTHS >= J)}),
    "documents": ({"mask": ct.documents(IDS) & ct.window(2, 1)},
                  {"visible": OWN & (P - J <= 2) & (J - P <= 1)}),
    "slopes and prefixes": ({"mask": ct.alibi(SLOPES) & ct.causal(torch.tensor([0, 3]))},
                            {"visible": (P >= J) | (J < PREFIX), "bias": ALIBI}),
    "bias and keep": ({"mask": ct.keep(MASK > -1) & ct.bias(MASK[0]), "softcap": 0.8, "scale": 0.3},
                      {"visible": MASK > -1, "bias": MASK, "softcap": 0.8, "scale": 0.3}),
    "cephalo's own": ({"mask": cephalo.causal() & cephalo.lengths([5, 3], [4, 3])},
                      {"visible": REAL & (BY_LENGTHS >= J)}),
}


def plain(*arguments, **named):
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*arguments, **named)


def inputs(count=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 3, 5, 4, dtype=torch.float64, generator=generator) for _ in range(count)]


def far(a, b):
    if isinstance(a, (tuple, list)):
        return max(far(x, y) for x, y in zip(a, b, strict=True))
    return (a - b).abs().max().item()


q, k, v, u = inputs(4)
several = torch.stack(inputs(3, seed=1))


def loss(f):
    return lambda q, k, v: f(q, k, v).sin().sum()


def leaves():
    return [t.clone().requires_grad_() for t in (q, k, v)]


def by_backward(f):
    x = leaves()
    loss(f)(*x).backward()
    return [t.grad for t in x]


def twice(f):
    x = leaves()
    firsts = torch.autograd.grad(loss(f)(*x), x, create_graph=True)
    return torch.autograd.grad(sum(first.sin().sum() for first in firsts), x)


def by_checkpoint(f):
    x = leaves()
    checkpoint(loss(f), *x, use_reentrant=False).backward()
    return [t.grad for t in x]


def compiled(f):
    torch.compiler.reset()  # it gives up on a line that it has seen with too many functions
    x = leaves()
    y = torch.compile(lambda *x: f(*x).sin() * 2, fullgraph=True, backend="aot_eager")(*x)
    y.sum().backward()
    return [y.detach(), *(t.grad for t in x)]


class Model(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, q, k, v):
        return self.f(q, k, v) * 2


def recorded(transform):
    """Under a mode that sees every operator."""
    def run(f):
        with FlopCounterMode(display=False):
            return transform(f)
    return run


def exported(f):
    return torch.export.export(Model(f), (q, k, v)).module()(q + 1, k, v)


@pytest.mark.filterwarnings("ignore")
def traced(f):
    return torch.jit.trace(Model(f), (q, k, v))(q + 1, k, v)


TRANSFORMS = {
    "call": lambda f: f(q, k, v),
    "backward": by_backward,
    "double backward": twice,
    "a batch of gradients": lambda f: torch.autograd.grad(
        f(*(x := leaves())), x, several, is_grads_batched=True),
    "checkpoint": by_checkpoint,
    "func.grad": lambda f: torch.func.grad(loss(f), argnums=(0, 1, 2))(q, k, v),
    "func.jvp": lambda f: torch.func.jvp(f, (q, k, v), (u, 2 * u, u - 1)),
    "func.jacfwd": lambda f: torch.func.jacfwd(lambda k: f(q, k, v).sum((1, 2)))(k),
    "func.jacrev": lambda f: torch.func.jacrev(lambda k: f(q, k, v).sum((1, 2)))(k),
    "func.hessian": lambda f: torch.func.hessian(loss(f), argnums=(0, 1, 2))(q, k, v)[1],
    "reverse over reverse": lambda f: torch.func.jacrev(torch.func.jacrev(loss(f)))(q, k, v),
    "reverse over forward": lambda f: torch.func.jacrev(torch.func.jacfwd(loss(f)))(q, k, v),
    "vmap, queries alone": lambda f: torch.vmap(f, (0, None, None))(several, k, v),
    "vmap, everything": lambda f: torch.vmap(f)(several, several + 1, several - 1),
    "vmap, another axis": lambda f: torch.vmap(f, (2, None, 2))(several.movedim(0, 2), k, several.movedim(0, 2)),
    "vmap of grad": lambda f: torch.vmap(torch.func.grad(loss(f), argnums=(0, 1)), (0, None, None))(several, k, v),
    "vmap of jvp": lambda f: torch.vmap(lambda u: torch.func.jvp(lambda q: f(q, k, v), (q,), (u,)))(several),
    "backward, recorded": recorded(by_backward),
    "double backward, recorded": recorded(twice),
    "compile": compiled,
    "export": exported,
    "jit.trace": traced,
}


SIXTEEN_BITS = ["backward", "double backward", "checkpoint", "func.grad", "func.jvp", "vmap of grad", "compile"]


def largest(a):
    return max(map(largest, a)) if isinstance(a, (tuple, list)) else a.abs().max().item()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", SIXTEEN_BITS)
def test_a_transform_of_16_bits_is_as_near_to_float64_as_that_of_pytorch(name, mask, monkeypatch):
    """Twice PyTorch's error, and a floor of four roundings of the largest number."""
    transform, here = TRANSFORMS[name], sys.modules[__name__]
    narrow = {name: getattr(here, name).bfloat16() for name in ("q", "k", "v", "u", "several", "MASK")}

    def arguments():
        return {"attn_mask": here.MASK} if mask == "bias" else MASKS[mask]

    def values(f, cast):
        for name, tensor in narrow.items():
            monkeypatch.setattr(here, name, cast(tensor))
        return transform(lambda *x: f(*x, **arguments()))

    exact = values(plain, torch.Tensor.double)
    theirs, ours = (values(f, lambda t: t) for f in (plain, scaled_dot_product_attention))
    assert far(ours, exact) <= 2 * far(theirs, exact) + 4 * 2.0 ** -8 * largest(exact)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_gives_the_values_of_pytorch(name, mask):
    transform, arguments = TRANSFORMS[name], MASKS[mask]
    found = transform(lambda q, k, v: scaled_dot_product_attention(q, k, v, **arguments))
    expected = transform(lambda q, k, v: plain(q, k, v, **arguments))
    assert far(found, expected) <= 1e-12


def seen(context, lse):
    return context * torch.where(lse.isinf(), 0.0, lse)[..., None]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mask", ATTENDS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_of_attend_gives_the_values_of_its_expression(name, mask):
    """With documents and a bias gradients come in from lse too."""
    transform, (arguments, written_out) = TRANSFORMS[name], ATTENDS[mask]
    with_lse = mask in ("documents", "bias and keep")

    def found(q, k, v):
        if not with_lse:
            return ct.attend(q, k, v, **arguments)
        return seen(*ct.attend(q, k, v, **arguments, return_lse=True)[:2])

    def expected(q, k, v):
        context, lse, _ = attention(q, k, v, **written_out)
        return seen(context, lse) if with_lse else context

    assert far(transform(found), transform(expected)) <= 1e-11


def test_gradcheck_forward_backward_and_twice():
    x = [*leaves(), MASK.clone().requires_grad_()]
    assert torch.autograd.gradcheck(scaled_dot_product_attention, x, check_forward_ad=True,
                                    check_batched_grad=True, check_batched_forward_grad=False)
    assert torch.autograd.gradgradcheck(scaled_dot_product_attention, x, check_fwd_over_rev=True)


def test_a_bias_is_differentiated_for_each_of_what_is_mapped():
    def of_bias(f):
        return torch.vmap(torch.func.grad(lambda m, q: f(q, k, v, m).sin().sum()), (None, 0))(MASK, several)

    assert far(of_bias(scaled_dot_product_attention), of_bias(plain)) <= 1e-12


def test_a_third_derivative_is_an_error():
    def third(q):
        return torch.func.grad(lambda q: torch.func.hessian(lambda q: loss(scaled_dot_product_attention)(
            q, k, v))(q).sum())(q)

    with pytest.raises((NotImplementedError, RuntimeError), match="third derivatives"):
        third(q)


def test_a_third_derivative_is_an_error_where_operators_are_recorded():
    def third(f):
        x = leaves()
        y = loss(f)(*x)
        for _ in range(2):
            y = torch.autograd.grad(y, x[0], create_graph=True)[0].sin().sum()
        torch.autograd.grad(y, x)

    with pytest.raises(NotImplementedError, match="third derivatives"):
        recorded(third)(scaled_dot_product_attention)


def test_inductor_compiles_around_it():
    x = leaves()
    y = torch.compile(lambda *x: scaled_dot_product_attention(*x, is_causal=True).sin() * 2, fullgraph=True)(*x)
    y.sum().backward()
    expected = compiled(lambda *x: plain(*x, is_causal=True))
    assert far([y.detach(), *(t.grad for t in x)], expected) <= 1e-12


def test_flops_are_counted_as_pytorch_counts_its_own():
    x = leaves()
    with FlopCounterMode(display=False) as ours:
        scaled_dot_product_attention(*x).sum().backward()
    with FlopCounterMode(display=False) as theirs:
        F.scaled_dot_product_attention(q, k, v)
    forward = theirs.get_total_flops()
    assert ours.get_total_flops() == forward + forward * 5 // 2


def test_dropout_under_vmap_follows_its_randomness():
    def dropped(q):
        return scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    same = torch.stack([q, q, q])
    with pytest.raises(RuntimeError, match='randomness is "error"'):
        torch.vmap(dropped)(same)
    different = torch.vmap(dropped, randomness="different")(same)
    assert not torch.equal(different[0], different[1])
    alike = torch.vmap(dropped, randomness="same")(same)
    assert torch.equal(alike[0], alike[1]) and torch.equal(alike[0], alike[2])


def test_a_compiled_graph_drops_other_weights_each_time():
    f = torch.compile(lambda q: scaled_dot_product_attention(q, k, v, dropout_p=0.5), fullgraph=True,
                      backend="aot_eager")
    assert not torch.equal(f(q), f(q))
    torch.manual_seed(3)
    first = f(q)
    torch.manual_seed(3)
    assert torch.equal(first, f(q))


def test_keys_that_are_not_mapped_are_not_copied():
    """One set of keys of 64 MiB, eight sets of queries: far less than eight copies of it."""
    import resource
    keys = torch.randn(2, 4, 32768, 64)
    queries = torch.randn(8, 2, 4, 4, 64)
    scaled_dot_product_attention(queries[0], keys, keys)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    torch.vmap(lambda q: scaled_dot_product_attention(q, keys, keys))(queries)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_double_backward_over_8192_tokens_needs_little_memory():
    """A matrix of all pairs would be 512 MiB; what is asked for is 512 KiB a tensor."""
    import resource

    def run(tokens):
        x = [torch.randn(1, 2, tokens, 8, requires_grad=True) for _ in range(3)]
        firsts = torch.autograd.grad(scaled_dot_product_attention(*x, is_causal=True).sin().sum(), x,
                                     create_graph=True)
        return torch.autograd.grad(sum(first.sin().sum() for first in firsts), x)

    run(256)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert all(torch.isfinite(t).all() for t in run(8192))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
