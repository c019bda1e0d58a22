"""The book's ladder in PyTorch and in cephalo, from the same seeds: print shows the same text."""

import ladder_torch
import pytest
import torch

import cephalo

SEED = 123
# The six words of the book's running example, three numbers each.
INPUTS = torch.tensor([[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64],
                       [0.22, 0.58, 0.33], [0.77, 0.25, 0.10], [0.05, 0.80, 0.55]])
BATCH = torch.stack((INPUTS, INPUTS))

# rung -> PyTorch's, cephalo's, the input
RUNGS = {
    "2, raw": (lambda: ladder_torch.SelfAttentionRaw(3, 2),
               lambda **o: cephalo.SelfAttention(3, 2, form="raw", **o), INPUTS),
    "2": (lambda: ladder_torch.SelfAttention(3, 2), lambda **o: cephalo.SelfAttention(3, 2, **o),
          INPUTS),
    "3": (lambda: ladder_torch.CausalAttention(3, 2, 6, 0.0),
          lambda **o: cephalo.CausalAttention(3, 2, 6, 0.0, **o), BATCH),
    "4": (lambda: ladder_torch.HeadWrapper(3, 2, 6, 0.0, 2),
          lambda **o: cephalo.HeadWrapper(3, 2, 6, 0.0, 2, **o), BATCH),
    "5": (lambda: ladder_torch.MultiHeadAttention(3, 2, 6, 0.0, 2),
          lambda **o: cephalo.MultiHeadAttention(3, 2, 6, 0.0, 2, **o), BATCH),
    "6": (lambda: ladder_torch.EasyMultiHeadAttention(8, 2),
          lambda **o: cephalo.EasyMultiHeadAttention(8, 2, **o), torch.arange(40.0).view(1, 5, 8) / 40),
    "7": (lambda: ladder_torch.FastMultiHeadAttention(8, 2),
          lambda **o: cephalo.FastMultiHeadAttention(8, 2, **o), torch.arange(40.0).view(1, 5, 8) / 40),
}
DROPPING = {
    "3": (lambda: ladder_torch.CausalAttention(3, 2, 6, 0.5),
          lambda **o: cephalo.CausalAttention(3, 2, 6, 0.5, **o)),
    "4": (lambda: ladder_torch.HeadWrapper(3, 2, 6, 0.5, 2),
          lambda **o: cephalo.HeadWrapper(3, 2, 6, 0.5, 2, **o)),
    "5": (lambda: ladder_torch.MultiHeadAttention(3, 2, 6, 0.5, 2),
          lambda **o: cephalo.MultiHeadAttention(3, 2, 6, 0.5, 2, **o)),
}


def printed(capsys, value):
    print(value)
    return capsys.readouterr().out


def test_rung_1_prints_the_same(capsys):
    weights = torch.softmax(INPUTS @ INPUTS.T, dim=-1)
    ours = cephalo.simple_attention(INPUTS)
    assert printed(capsys, ours.weights) == printed(capsys, weights)
    assert printed(capsys, ours.context) == printed(capsys, weights @ INPUTS)


@pytest.mark.parametrize("rung", RUNGS)
def test_a_rung_prints_the_same(rung, capsys):
    theirs, ours, x = RUNGS[rung]
    torch.manual_seed(SEED)
    module = theirs()
    layer = ours(seed=SEED)
    for name, parameter in module.named_parameters():
        assert torch.equal(torch.tensor(layer.parameters[name]), parameter)
    with torch.no_grad():
        expected = printed(capsys, module(x))
    assert printed(capsys, layer(x)) == expected and "tensor" in expected


@pytest.mark.parametrize("rung", DROPPING)
def test_dropout_prints_the_same(rung, capsys):
    theirs, ours = DROPPING[rung]
    torch.manual_seed(SEED)
    with torch.no_grad():
        expected = printed(capsys, theirs()(BATCH))
    stream = cephalo.TorchGenerator(SEED)
    layer = ours(seed=stream, dropout_stream="torch")
    assert printed(capsys, layer(BATCH, generator=stream)) == expected
