"""from_torch and to_torch_state_dict: a layer for a module and back."""

import ladder_torch
import pytest
import torch
from torch import nn
from transformers import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

import cephalo.torch
from cephalo import from_torch, to_torch_state_dict

MODULES = {
    "SelfAttention, raw": lambda: ladder_torch.SelfAttentionRaw(8, 6),
    "SelfAttention": lambda: ladder_torch.SelfAttention(8, 6, True),
    "CausalAttention": lambda: ladder_torch.CausalAttention(8, 6, 16, 0.1),
    "HeadWrapper": lambda: ladder_torch.HeadWrapper(8, 3, 16, 0.1, 2, True, True),
    "HeadWrapper, bare": lambda: ladder_torch.HeadWrapper(8, 3, 16, 0.0, 2),
    "MultiHeadAttention": lambda: ladder_torch.MultiHeadAttention(8, 6, 16, 0.1, 2, True),
    "MultiHeadAttention, cephalo's": lambda: cephalo.torch.MultiHeadAttention(8, 6, 16, 0.1, 2),
    "EasyMultiHeadAttention": lambda: ladder_torch.EasyMultiHeadAttention(8, 2),
    "FastMultiHeadAttention": lambda: ladder_torch.FastMultiHeadAttention(8, 2),
}


def gpt2(layer_idx=0, **options):
    config = GPT2Config(n_embd=8, n_head=2, n_positions=16, **options)
    config._attn_implementation = "eager"
    return GPT2Attention(config, layer_idx=layer_idx)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype, bound", [(torch.float32, 1e-5), (torch.float64, 1e-12),
                                          (torch.float16, 4e-3), (torch.bfloat16, 4e-2)])
@pytest.mark.parametrize("name", MODULES)
def test_the_books_classes_come_and_go(name, dtype, bound):
    module = MODULES[name]().to(dtype).eval()
    layer = from_torch(module)
    assert repr(layer).startswith(name.split(",")[0]) and not layer.training
    x = torch.randn(2, 5, 8).to(dtype)
    with torch.no_grad():
        assert (layer(x) - module(x)).abs().max() <= bound
    state = to_torch_state_dict(layer)
    assert list(state) == [n for n, _ in module.named_parameters()]
    assert all(torch.equal(state[n], p) and state[n].dtype == dtype
               for n, p in module.named_parameters())


def test_it_is_a_method_of_the_layers_too():
    module = ladder_torch.MultiHeadAttention(8, 6, 16, 0.25, 2)
    layer = cephalo.MultiHeadAttention.from_torch(module)
    assert layer.training and layer.dropout == 0.25 and layer.context_length == 16
    module.load_state_dict(layer.to_torch_state_dict(), strict=True)


def test_buffers_are_written_on_request():
    module = cephalo.torch.MultiHeadAttention(8, 6, 16, 0.1, 2)
    state = to_torch_state_dict(from_torch(module), buffers=True)
    assert torch.equal(state["mask"], module.mask)
    cephalo.torch.MultiHeadAttention(8, 6, 16, 0.1, 2).load_state_dict(state, strict=True)
    wrapper = to_torch_state_dict(from_torch(ladder_torch.HeadWrapper(8, 3, 4, 0.0, 2)), buffers=True)
    assert wrapper["heads.1.mask"].shape == (4, 4)
    with pytest.raises(ValueError, match="has no mask buffer"):
        to_torch_state_dict(from_torch(nn.MultiheadAttention(8, 2)), buffers=True)


@pytest.mark.parametrize("bias", [True, False])
def test_pytorchs_own_layer_comes_and_goes(bias):
    module = nn.MultiheadAttention(8, 2, batch_first=True, bias=bias).eval()
    layer = from_torch(module)
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        assert (layer(x) - module(x, x, x)[0]).abs().max() <= 1e-5
    other = nn.MultiheadAttention(8, 2, bias=bias)
    other.load_state_dict(to_torch_state_dict(layer), strict=True)
    assert torch.equal(other.in_proj_weight, module.in_proj_weight)


def test_gpt2_attention_comes_and_goes():
    module = gpt2().eval()
    nn.init.normal_(module.c_attn.bias)
    nn.init.normal_(module.c_attn.weight)
    layer = from_torch(module)
    assert layer.form == "gpt2" and layer.context_length == 16
    x = torch.randn(2, 5, 8)
    future = torch.triu(torch.full((5, 5), -torch.inf), 1)[None, None]
    with torch.no_grad():
        assert (layer(x) - module(x, attention_mask=future)[0]).abs().max() <= 1e-5
    other = gpt2()
    other.load_state_dict(to_torch_state_dict(layer), strict=True)
    assert torch.equal(other.c_attn.weight, module.c_attn.weight)


def with_something_else():
    module = ladder_torch.MultiHeadAttention(8, 6, 16, 0.1, 2)
    module.norm = nn.LayerNorm(6)
    return module


def of_two_dtypes():
    module = ladder_torch.MultiHeadAttention(8, 6, 16, 0.1, 2)
    module.out_proj.double()
    return module


def of_unknown_length():
    module = ladder_torch.MultiHeadAttention(8, 6, 16, 0.1, 2)
    del module.context_length
    return module


REFUSED = [
    (lambda: nn.MultiheadAttention(8, 2, kdim=4), r"kdim \(4\)"),
    (lambda: nn.MultiheadAttention(8, 2, add_bias_kv=True), "add_bias_kv"),
    (lambda: nn.MultiheadAttention(8, 2, add_zero_attn=True), "add_zero_attn"),
    (lambda: gpt2(), r"resid_dropout \(0.1\)"),
    (lambda: gpt2(scale_attn_weights=False), "scale_attn_weights"),
    (lambda: gpt2(1, scale_attn_by_inverse_layer_idx=True), "inverse_layer_idx at layer 1"),
    (lambda: GPT2Attention(GPT2Config(n_embd=8, n_head=2), is_cross_attention=True), "encoder"),
    (lambda: nn.Linear(8, 8), "Linear has no known form"),
    (with_something_else, "has norm.bias, norm.weight"),
    (of_two_dtypes, "float32, float64; one dtype"),
    (of_unknown_length, "context_length"),
]


@pytest.mark.parametrize("make, text", REFUSED)
def test_what_would_be_lost_is_refused_by_name(make, text):
    with pytest.raises(ValueError, match=f"from_torch: .*{text}"):
        from_torch(make())
