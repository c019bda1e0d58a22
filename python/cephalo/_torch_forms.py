"""What PyTorch modules of attention are made of: which layer holds one, and where its tensors go.

A module is recognised by its attributes and their shapes. Its forward cannot be read, so what the attributes
cannot say is taken from the classes that people know them from.
"""

import typing

from . import _torch_rotary
from ._cephalo import (
    CausalAttention,
    EasyMultiHeadAttention,
    FastMultiHeadAttention,
    HeadWrapper,
    MultiHeadAttention,
    SelfAttention,
)
from ._torch_reading import (
    check_causal_buffer,
    check_residual_dropout,
    context_length,
    dropout_rate,
    first,
    has_bias,
    is_causal,
    need,
    num_heads,
    projection,
    refuse,
    widths,
)

# A layer of this form has the names of a whole block, GPT2Attention those of its own.
_GPT2_PREFIX = "attn."
_QKV = ("query", "key", "value")


class Place(typing.NamedTuple):
    """Where a parameter of the layer comes from: tensors of the module, and what becomes of them."""
    names: tuple
    made: typing.Callable = lambda tensor: tensor


class Form(typing.NamedTuple):
    layer: object
    places: dict  # the layer's names -> Place


def own_name(layer, name):
    """The PyTorch module's name for a parameter of the layer, where the two have the same form."""
    return name.removeprefix(_GPT2_PREFIX) if layer.form == "gpt2" else name


def _same_names(layer):
    return Form(layer, {name: Place((own_name(layer, name),)) for name in layer.parameters})


def _renamed(layer, names):
    """names: the layer's projections -> the module's"""
    places = {}
    for name in layer.parameters:
        projection, _, kind = name.rpartition(".")
        places[name] = Place((f"{names[projection]}.{kind}",))
    return Form(layer, places)


def _raw(module, dtype):
    """W_query, W_key and W_value as matrices, used as x @ W."""
    d_in, d_out = module.W_query.shape
    return _same_names(SelfAttention(d_in, d_out, form="raw", dtype=dtype, seed=0))


def _book_qkv(module):
    return [projection(module, f"W_{name}", "to project by") for name in _QKV]


def _einsum(module, dtype):
    """The same matrices with an out_proj behind them, biases next to them."""
    d_in, d_out = need(module, "W_query", "to project by").shape
    out_proj = projection(module, "out_proj", "after the heads")
    biases = [getattr(module, f"bias_{name[0]}", None) for name in _QKV]
    if len({bias is None for bias in biases}) != 1:
        refuse(module, "has some of bias_q, bias_k and bias_v; all or none is needed")
    layer = MultiHeadAttention(
        d_in, d_out, context_length(module), dropout_rate(module), num_heads(module), biases[0] is not None,
        out_bias=out_proj.bias is not None, dtype=dtype, seed=0)
    places = {}
    for name in _QKV:
        places[f"W_{name}.weight"] = Place((f"W_{name}",), lambda tensor: tensor.T)
        places[f"W_{name}.bias"] = Place((f"bias_{name[0]}",))
    return Form(layer, {name: places.get(name, Place((name,))) for name in layer.parameters})


def _one_head(module, dtype):
    projections = _book_qkv(module)
    d_in, d_out = widths(projections[0])
    qkv_bias = has_bias(module, *projections)
    if not hasattr(module, "mask") and not hasattr(module, "dropout"):
        return _same_names(SelfAttention(d_in, d_out, qkv_bias, dtype=dtype, seed=0))
    return _same_names(CausalAttention(d_in, d_out, context_length(module), dropout_rate(module), qkv_bias,
                                       dtype=dtype, seed=0))


def _kv_heads(module, heads, q, k):
    """Told by shapes: heads of keys are as wide as heads of queries."""
    q_width, k_width = q.weight.shape[0], k.weight.shape[0]
    if q_width % heads != 0 or k_width % (q_width // heads) != 0:
        refuse(module, f"projects queries to {q_width} and keys to {k_width} numbers, which {heads} heads of "
                       "one width do not divide")
    return k_width // (q_width // heads)


def _separate(module, dtype):
    """The book's MultiHeadAttention."""
    projections = _book_qkv(module)
    d_in, d_out = widths(projections[0])
    heads, out_proj = num_heads(module), projection(module, "out_proj", "after the heads")
    return _same_names(MultiHeadAttention(
        d_in, d_out, context_length(module), dropout_rate(module), heads, has_bias(module, *projections),
        num_kv_heads=_kv_heads(module, heads, *projections[:2]), out_bias=out_proj.bias is not None,
        dtype=dtype, seed=0))


def _wrapper(module, dtype):
    if not hasattr(module.heads, "__iter__"):
        refuse(module, f"has heads of type {type(module.heads).__name__}; a list of modules was looked for")
    heads = list(module.heads)
    if not heads:
        refuse(module, "has an empty list of heads")
    projections = [_book_qkv(head) for head in heads]
    d_in, d_out = widths(projections[0][0])
    if len({(context_length(h), dropout_rate(h)) for h in heads}) != 1:
        refuse(module, "has heads of different context_length or dropout; one for all is needed")
    return _same_names(HeadWrapper(
        d_in, d_out, context_length(heads[0]), dropout_rate(heads[0]), len(heads),
        has_bias(module, *[p for each in projections for p in each]), hasattr(module, "out_proj"), dtype=dtype,
        seed=0))


def _check_pytorch(module):
    for name in ("embed_dim", "num_heads", "kdim", "vdim", "in_proj_bias", "bias_k", "add_zero_attn", "dropout"):
        need(module, name, "which nn.MultiheadAttention has")
    projection(module, "out_proj", "which nn.MultiheadAttention has")
    if module.in_proj_weight is None:
        refuse(module, f"has kdim ({module.kdim}) or vdim ({module.vdim}) other than embed_dim "
                       f"({module.embed_dim}); one in_proj_weight is needed")
    if module.bias_k is not None:
        refuse(module, "has add_bias_kv: bias_k and bias_v have no place in the layer")
    if module.add_zero_attn:
        refuse(module, "has add_zero_attn: the layer attends to no extra zero key")


def _pytorch(module, dtype):
    """nn.MultiheadAttention."""
    _check_pytorch(module)
    return _same_names(MultiHeadAttention(
        module.embed_dim, module.embed_dim, 0, module.dropout, module.num_heads,
        module.in_proj_bias is not None, out_bias=module.out_proj.bias is not None, causal=False, form="torch",
        dtype=dtype, seed=0))


def _product(second, first):
    """Of two projections, one after the other, in float64: rounded once."""
    return (second.double() @ first.double()).to(second.dtype)


def _pytorch_inside(module, dtype):
    """nn.MultiheadAttention behind a causal mask, with another projection after its own: the two become
    the layer's one."""
    inner, proj = module.multihead_attn, projection(module, "proj", "after multihead_attn")
    need(inner, "in_proj_weight", "which nn.MultiheadAttention has")
    _check_pytorch(inner)
    inner_bias, proj_bias = inner.out_proj.bias is not None, proj.bias is not None
    layer = MultiHeadAttention(
        inner.embed_dim, proj.weight.shape[0], context_length(module), inner.dropout, inner.num_heads,
        inner.in_proj_bias is not None, out_bias=inner_bias or proj_bias, form="torch", dtype=dtype, seed=0)
    weights = ("proj.weight", "multihead_attn.out_proj.weight")
    places = {name: Place((f"multihead_attn.{name}",)) for name in layer.parameters}
    places["out_proj.weight"] = Place(weights, _product)
    if inner_bias and proj_bias:
        places["out_proj.bias"] = Place(
            ("proj.bias", "proj.weight", "multihead_attn.out_proj.bias"),
            lambda bias, weight, inner: (bias.double() + weight.double() @ inner.double()).to(bias.dtype))
    elif inner_bias:
        places["out_proj.bias"] = Place(("proj.weight", "multihead_attn.out_proj.bias"), _product)
    elif proj_bias:
        places["out_proj.bias"] = Place(("proj.bias",))
    return Form(layer, places)


def _gpt2(module, dtype):
    """c_attn and c_proj: Hugging Face's GPT2Attention stores them in x out, nanoGPT and minGPT as Linear."""
    projection(module, "c_proj", "after c_attn")
    if getattr(module, "is_cross_attention", False):
        refuse(module, "attends to an encoder: the layer cannot hold its q_attn")
    narrow, wide = projection(module, "c_attn", "to project by").weight.shape
    if narrow == 3 * wide:
        return _nano(module, dtype)
    if wide != 3 * narrow:
        refuse(module, f"has a c_attn of shape {tuple(module.c_attn.weight.shape)}; three times as many "
                       "outputs as inputs were looked for")
    if not getattr(module, "scale_attn_weights", True):
        refuse(module, "has scale_attn_weights=False; the layer scales by 1 / sqrt(head_dim)")
    if getattr(module, "scale_attn_by_inverse_layer_idx", False) and module.layer_idx != 0:
        refuse(module, f"has scale_attn_by_inverse_layer_idx at layer {module.layer_idx}; the layer "
                       "scales by 1 / sqrt(head_dim) alone")
    check_residual_dropout(module)
    length = first(module, "n_positions", "block_size", "context_length")
    return _same_names(MultiHeadAttention(
        narrow, narrow, 0 if length is None else length, dropout_rate(module), num_heads(module), True,
        form="gpt2", dtype=dtype, seed=0))


def _nano(module, dtype):
    """nanoGPT's and minGPT's CausalSelfAttention. With PyTorch's attention function it knows no longest
    input, otherwise its bias buffer does."""
    check_residual_dropout(module)
    layer = MultiHeadAttention(
        *reversed(module.c_proj.weight.shape), check_causal_buffer(module) or 0, dropout_rate(module),
        num_heads(module), module.c_attn.bias is not None, out_bias=module.c_proj.bias is not None,
        form="joined", dtype=dtype, seed=0)
    return _renamed(layer, {"qkv_proj": "c_attn", "out_proj": "c_proj"})


def _old_mingpt(module, dtype):
    """minGPT's first CausalSelfAttention: query, key, value and proj."""
    projections = [projection(module, name, "to project by") for name in _QKV]
    proj = projection(module, "proj", "after query, key and value")
    check_residual_dropout(module)
    layer = MultiHeadAttention(
        *widths(projections[0]), context_length(module), dropout_rate(module), num_heads(module),
        has_bias(module, *projections), out_bias=proj.bias is not None, dtype=dtype, seed=0)
    return _renamed(layer, {**{f"W_{name}": name for name in _QKV}, "out_proj": "proj"})


def _combined(module, dtype):
    """qkv and proj: rows of all queries, then of all keys, then of all values."""
    proj = projection(module, "proj", "after qkv")
    d_in, qkv_width = widths(projection(module, "qkv", "to project by"))
    if qkv_width != 3 * proj.weight.shape[1]:
        refuse(module, f"has a qkv of width {qkv_width} and a proj of {proj.weight.shape[1]}; three times as "
                       "much was looked for")
    check_residual_dropout(module)
    causal = is_causal(module)
    layer = MultiHeadAttention(
        d_in, proj.weight.shape[0], context_length(module) if causal else 0, dropout_rate(module),
        num_heads(module), module.qkv.bias is not None, out_bias=proj.bias is not None, causal=causal,
        form="joined", dtype=dtype, seed=0)
    return _renamed(layer, {"qkv_proj": "qkv", "out_proj": "proj"})


def _llama(module, dtype):
    """q_proj, k_proj, v_proj and o_proj, keys and values perhaps of fewer heads, with rotary positions."""
    q, k, v, o = (projection(module, f"{name}_proj", "to project by") for name in "qkvo")
    d_in, q_width = widths(q)
    heads = num_heads(module)
    kv_heads = _kv_heads(module, heads, q, k)
    said = first(module, "num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_kv_head")
    if said not in (None, kv_heads) or v.weight.shape[0] != k.weight.shape[0]:
        refuse(module, f"has num_key_value_heads ({said}), keys of {k.weight.shape[0]} and values of "
                       f"{v.weight.shape[0]} numbers, which do not agree")
    if o.weight.shape[0] != q_width:
        refuse(module, f"projects {q_width} numbers of its heads to {o.weight.shape[0]}; the layer's heads are "
                       "as wide together as its output")
    rotary = _torch_rotary.of(module, q_width // heads)
    length = first(module, "max_position_embeddings", "context_length", "block_size")
    layer = MultiHeadAttention(
        d_in, q_width, 0 if length is None else length, dropout_rate(module), heads, has_bias(module, q, k, v),
        num_kv_heads=kv_heads, out_bias=o.bias is not None, causal=getattr(module, "is_causal", True),
        rotary=rotary, dtype=dtype, seed=0)
    return _renamed(layer, {"W_query": "q_proj", "W_key": "k_proj", "W_value": "v_proj", "out_proj": "o_proj"})


def _easy(module, dtype):
    projections = [projection(module, f"{name}_linear", "to project by") for name in "qkv"]
    has_bias(module, *projections)
    return _same_names(EasyMultiHeadAttention(projections[0].weight.shape[1], num_heads(module), dtype=dtype,
                                              seed=0))


def _fast(module, dtype):
    return _same_names(FastMultiHeadAttention(
        projection(module, "qkv_proj", "to project by").weight.shape[1], num_heads(module), dtype=dtype, seed=0))


# The attribute that gives a module away, and what reads it.
_READERS = {"in_proj_weight": _pytorch, "multihead_attn": _pytorch_inside, "c_attn": _gpt2, "qkv": _combined,
            "qkv_proj": _fast, "q_linear": _easy, "o_proj": _llama, "query": _old_mingpt, "heads": _wrapper}


def _reader(module):
    for attribute, reader in _READERS.items():
        if hasattr(module, attribute):
            return reader
    if not hasattr(module, "W_query"):
        refuse(module, f"has no known form: it has none of {', '.join(('W_query', *_READERS))}")
    is_matrix = getattr(module.W_query, "dim", lambda: 0)() == 2
    if hasattr(module, "out_proj"):
        return _einsum if is_matrix else _separate
    return _raw if is_matrix else _one_head


def form_of(module, dtype):
    """The layer that holds such a module, with places for its parameters."""
    return _reader(module)(module, dtype)
