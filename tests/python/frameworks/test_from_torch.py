"""from_torch and to_torch_state_dict: a layer for a module and back."""

import attention_modules as others
import ladder_torch
import pytest
import torch
from torch import nn
from transformers import GPT2Config, LlamaConfig
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

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


OTHERS = {
    "nanoGPT": lambda: others.NanoGPTAttention(),
    "nanoGPT, no bias": lambda: others.NanoGPTAttention(bias=False),
    "nanoGPT, no flash": lambda: others.NanoGPTAttention(flash=False),
    "minGPT": lambda: others.MinGPTAttention(),
    "minGPT, the first": lambda: others.FirstMinGPTAttention(),
    "combined qkv": lambda: others.CombinedQKV(),
    "combined qkv, bias": lambda: others.CombinedQKV(qkv_bias=True),
    "einsum": lambda: others.Einsum(),
    "einsum, bias": lambda: others.Einsum(qkv_bias=True),
    "PyTorch's function": lambda: others.PyTorchSDPA(),
    "PyTorch's function, no flash": lambda: others.PyTorchSDPAWithoutFlash(),
    "PyTorch's class": lambda: others.PyTorchClass(),
    "PyTorch's class, no weights": lambda: others.PyTorchClass(need_weights=False),
    "PyTorch's class, biases": lambda: with_random_biases(others.PyTorchClass(qkv_bias=True)),
    "FlexAttention": lambda: others.PyTorchFlexAttention(),
    "shared heads": lambda: others.SharedHeads(),
    "Llama": lambda: others.LlamaStyle(),
    "Llama, another base": lambda: others.LlamaStyle(rope_theta=500.0, num_key_value_heads=1, bias=True),
}


def with_random_biases(module):
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return module


@pytest.mark.parametrize("dtype, bound", [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("name", OTHERS)
def test_other_peoples_classes_come(name, dtype, bound):
    module = OTHERS[name]().to(dtype).eval()
    layer = from_torch(module)
    x = torch.randn(2, 7, 16 if "Llama" in name else 8).to(dtype)
    with torch.no_grad():
        assert (layer(x) - module(x)).abs().max() <= bound
    assert layer.causal and layer.parameter_count <= sum(p.numel() for p in module.parameters())


def test_longest_inputs_and_dropout_come_too():
    assert from_torch(others.NanoGPTAttention(flash=False)).context_length == 16
    assert from_torch(others.NanoGPTAttention()).context_length == 0  # it never says
    layer = from_torch(others.CombinedQKV(dropout=0.25))
    assert layer.context_length == 16 and layer.dropout == 0.25 and layer.training
    assert from_torch(others.MinGPTAttention(dropout=0.25).eval()).dropout == 0.25


def llama(**options):
    options = {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
               "rope_parameters": {"rope_type": "default", "rope_theta": 300.0}} | options
    config = LlamaConfig(**options)
    config._attn_implementation = "eager"
    return LlamaAttention(config, layer_idx=0)


def test_llama_attention_of_hugging_face_comes():
    module = llama().eval()
    layer = from_torch(module)
    assert layer.num_kv_heads == 2 and layer.rotary.base == 300.0
    x = torch.randn(2, 7, 16)
    turns = LlamaRotaryEmbedding(module.config)(x, torch.arange(7)[None])
    hidden = torch.full((7, 7), -torch.inf).triu(1)[None, None]
    with torch.no_grad():
        assert (layer(x) - module(x, turns, hidden)[0]).abs().max() <= 1e-5


def with_rotary_emb(base, frequencies_of):
    module = others.LlamaStyle(rope_theta=base)
    del module.rope_theta
    module.rotary_emb = nn.Module()
    module.rotary_emb.base = base
    module.rotary_emb.register_buffer("inv_freq", frequencies_of ** -torch.tensor([0.0, 0.5]))
    return module


def test_a_base_may_be_kept_by_the_part_that_turns():
    assert from_torch(with_rotary_emb(300.0, 300.0)).rotary.base == 300.0


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


def without(module, name):
    delattr(module, name)
    return module


def with_attribute(module, **attributes):
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


def showing_all(module, name):
    setattr(module, name, torch.ones_like(getattr(module, name)))
    return module


REFUSED = [
    (lambda: without(others.NanoGPTAttention(), "n_head"), "num_heads, n_head, n_heads.*how many heads"),
    (lambda: without(others.NanoGPTAttention(), "c_proj"), "has no c_proj"),
    (lambda: others.NanoGPTAttention(dropout=0.1), r"resid_dropout \(0.1\)"),
    (lambda: showing_all(others.MinGPTAttention(), "bias"), "buffer bias .* not a causal mask"),
    (lambda: showing_all(others.CombinedQKV(), "mask"), "buffer mask .* not a causal mask"),
    (lambda: without(others.PyTorchSDPA(), "context_length"), "whether it hides the future"),
    (lambda: without(others.PyTorchSDPA(), "proj"), "has no proj, after qkv"),
    (lambda: with_attribute(others.PyTorchSDPA(), proj=nn.Linear(5, 6)), "qkv of width 18 and a proj of 5"),
    (lambda: others.PyTorchClass(qkv_bias=True, add_bias_kv=True), "add_bias_kv"),
    (lambda: without(others.FirstMinGPTAttention(), "value"), "has no value"),
    (lambda: without(ladder_torch.SelfAttention(8, 6), "W_key"), "has no W_key"),
    (lambda: with_attribute(nn.Module(), heads=nn.ModuleList(), w=nn.Parameter(torch.ones(2))), "empty list"),
    (lambda: with_attribute(nn.Module(), heads=nn.ModuleList([nn.Linear(2, 2)])), "has no W_query"),
    (lambda: with_attribute(nn.Module(), in_proj_weight=nn.Parameter(torch.ones(2, 2))), "has no embed_dim"),
    (lambda: without(ladder_torch.FastMultiHeadAttention(8, 2), "num_heads"), "how many heads"),
    (lambda: without(others.LlamaStyle(), "k_proj"), "has no k_proj"),
    (lambda: without(others.LlamaStyle(), "rope_theta"), "their base: rope_theta, rotary_emb.base"),
    (lambda: with_rotary_emb(300.0, 500.0), "inv_freq that does not follow"),
    (lambda: with_attribute(others.LlamaStyle(), q_norm=nn.LayerNorm(4)), "has q_norm.bias, q_norm.weight"),
    (lambda: with_attribute(others.LlamaStyle(), sliding_window=8), r"sliding_window \(8\)"),
    (lambda: with_attribute(others.LlamaStyle(), attn_logit_softcapping=50.0), r"softcap \(50.0\)"),
    (lambda: with_attribute(others.LlamaStyle(), scaling=0.3), "scales by 0.3"),
    (lambda: with_attribute(others.LlamaStyle(), num_key_value_heads=4), "do not agree"),
    (lambda: with_attribute(others.LlamaStyle(), o_proj=nn.Linear(16, 12)), "16 numbers of its heads to 12"),
    (lambda: llama(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 300.0}), "type linear"),
    (lambda: ladder_torch.MultiHeadAttention(8, 6, 16, 0.1, 2).to("meta"), "parameters on meta"),
    (lambda: with_attribute(nn.Module(), W_query=nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))),
     "parameters of complex64; supported"),
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


def taken_apart(make):
    """The module without each of its attributes, and with each of its parts replaced."""
    names = [n for n in vars(make()) if not n.startswith("_") and n != "training"]
    parts = [n for n, _ in make().named_children()]
    tensors = [n for n, _ in (*make().named_parameters(recurse=False), *make().named_buffers(recurse=False))]
    yield from (without(make(), name) for name in names + parts + tensors)
    yield from (with_attribute(make(), **{name: nn.Identity()}) for name in parts)
    yield from (with_attribute(make(), **{name: None}) for name in names + parts)


@pytest.mark.parametrize("name", [*MODULES, *OTHERS])
def test_a_part_that_is_missing_is_never_an_attribute_error(name):
    for module in taken_apart((MODULES | OTHERS)[name]):
        try:
            from_torch(module)
        except ValueError as error:
            assert str(error).startswith("from_torch: ")
