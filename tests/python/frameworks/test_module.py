"""cephalo.torch.MultiHeadAttention in the place of the book's class."""

import copy
import io

import ladder_torch
import pytest
import torch
from small_gpt import train
from torch import nn

import cephalo.torch


class BookAttention(ladder_torch.MultiHeadAttention):
    """With the mask as a buffer, which is a part of the book's state dict."""

    def __init__(self, d_in, d_out, context_length, *others, **named):
        super().__init__(d_in, d_out, context_length, *others, **named)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length),
                                                diagonal=1))


def both(*arguments, **named):
    """The same layer in both, from the same seed."""
    layers = []
    for made in (BookAttention, cephalo.torch.MultiHeadAttention):
        torch.manual_seed(123)
        layers.append(made(*arguments, **named))
    return layers


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_parameters_of_a_seed_and_the_state_dict_are_the_books(qkv_bias):
    book, ours = both(12, 8, 16, 0.1, 2, qkv_bias)
    assert list(book.state_dict()) == list(ours.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(book.state_dict().values(),
                                                 ours.state_dict().values()))
    for source, target in ((book, ours), (ours, book)):
        nn.init.normal_(source.W_query.weight)
        target.load_state_dict(source.state_dict(), strict=True)
        assert torch.equal(source.W_query.weight, target.W_query.weight)


@pytest.mark.parametrize("dtype, bound", [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_outputs_and_gradients_are_the_books(dtype, bound):
    book, ours = (layer.to(dtype) for layer in both(12, 8, 16, 0.0, 2, True))
    x = torch.randn(3, 11, 12, dtype=dtype)
    results = []
    for layer in (book, ours):
        y = layer(x)
        y.square().sum().backward()
        results.append([y, *(p.grad for p in layer.parameters())])
    assert all((a - b).abs().max() <= bound for a, b in zip(*results))
    assert (ours(x[0]) - results[1][0][0]).abs().max() <= bound


def test_gradcheck_of_the_layer():
    ours = both(3, 4, 6, 0.0, 2)[1].double()
    x = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ours, (x,))


@pytest.mark.parametrize("dtype, bound", [(torch.float16, 4e-3), (torch.bfloat16, 3e-2)])
def test_half_precision_is_computed_and_trained(dtype, bound):
    """The book's layer in float64 with the same parameters says what is right."""
    book, ours = both(12, 8, 16, 0.0, 2)
    ours = ours.to(dtype)
    book.load_state_dict(ours.state_dict())
    book = book.double()
    x = torch.randn(3, 11, 12).to(dtype)
    y, expected = ours(x), book(x.double())
    assert y.dtype == dtype and (y - expected).abs().max() <= bound
    dy = torch.randn_like(y)
    y.backward(dy)
    expected.backward(dy.double())
    for (name, a), b in zip(ours.named_parameters(), book.parameters()):
        assert a.grad.dtype == dtype, name
        assert (a.grad - b.grad).abs().max() <= bound * b.grad.abs().max(), name


def test_dropout_acts_in_training_alone_and_follows_the_seed():
    ours = both(12, 8, 16, 0.5, 2)[1]
    x = torch.randn(3, 11, 12)
    torch.manual_seed(1)
    first, second = ours(x), ours(x)
    torch.manual_seed(1)
    assert torch.equal(ours(x), first) and not torch.equal(first, second)
    assert torch.equal(ours.eval()(x), ours(x))


def test_it_is_copied_and_saved_like_any_module():
    ours = both(12, 8, 16, 0.0, 2)[1]
    x = torch.randn(3, 11, 12)
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    for other in (copy.deepcopy(ours), torch.load(file, weights_only=False)):
        assert torch.equal(other(x), ours(x))


def test_a_projection_may_be_replaced():
    book, ours = both(12, 8, 16, 0.0, 2)
    for layer in (book, ours):
        layer.W_query = nn.Sequential(layer.W_query, nn.Tanh())
    x = torch.randn(3, 11, 12)
    assert (book(x) - ours(x)).abs().max() <= 1e-5


def test_what_cannot_be_is_named():
    with pytest.raises(ValueError, match=r"d_out \(8\) must be divisible by num_heads \(3\)"):
        cephalo.torch.MultiHeadAttention(12, 8, 16, 0.0, 3)
    with pytest.raises(ValueError, match=r"17 tokens .* context_length \(16\)"):
        both(12, 8, 16, 0.0, 2)[1](torch.randn(1, 17, 12))


def test_a_small_gpt_learns_the_same_way(capsys):
    book, book_ms = train(BookAttention)
    ours, our_ms = train(cephalo.torch.MultiHeadAttention)
    apart = max(abs(a - b) for a, b in zip(book, ours))
    with capsys.disabled():
        print(f"\n50 steps of a small GPT: loss {ours[0]:.4f} -> {ours[-1]:.4f}, curves {apart:.1e} "
              f"apart; the book's class {book_ms:.2f} ms a step, cephalo's {our_ms:.2f} ms")
    assert ours[-1] < ours[0] - 0.5 and apart <= 1e-4


def test_a_small_gpt_learns_under_autocast_as_the_book_does(capsys):
    """Curves leave that of float32; cephalo's by no more than twice what the book's does, and 1e-4."""
    exact, _ = train(BookAttention, steps=20)
    (book, book_ms), (ours, our_ms) = (train(attention, steps=20, lowered=torch.bfloat16)
                                       for attention in (BookAttention, cephalo.torch.MultiHeadAttention))
    book_off, our_off = (max(abs(a - b) for a, b in zip(curve, exact)) for curve in (book, ours))
    with capsys.disabled():
        print(f"\n20 steps of a small GPT under autocast, bfloat16: loss {ours[0]:.4f} -> {ours[-1]:.4f}, from "
              f"float32 {our_off:.1e}, the book's {book_off:.1e}; {our_ms:.2f} ms a step, the book's {book_ms:.2f}")
    assert ours[-1] < ours[0] - 0.3 and our_off <= 2 * book_off + 1e-4
