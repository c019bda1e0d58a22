"""Layers from PyTorch modules and back: whatever would be lost is refused by name."""

from ._cephalo import (
    CausalAttention,
    EasyMultiHeadAttention,
    FastMultiHeadAttention,
    HeadWrapper,
    MultiHeadAttention,
    SelfAttention,
)

_NAME = "from_torch"
# Causal masks, which a layer has by definition.
_BUFFERS = ("mask", "bias", "masked_bias")
# A layer of this form has the names of a whole block, GPT2Attention those of its own.
_GPT2_PREFIX = "attn."


def _refuse(module, why):
    raise ValueError(f"{_NAME}: {type(module).__name__} {why}")


def _dtype(module):
    """One element type for all parameters."""
    found = sorted({str(p.dtype).removeprefix("torch.") for p in module.parameters()})
    if len(found) != 1:
        _refuse(module, f"has parameters of {', '.join(found) or 'no dtype'}; one dtype is needed")
    return found[0]


def _context_length(module):
    """Of a causal module: told by its mask buffer, or by an attribute of that name."""
    mask = getattr(module, "mask", None)
    if mask is not None:
        return mask.shape[-1]
    length = getattr(module, "context_length", None)
    if length is None:
        _refuse(module, "has neither a mask buffer nor context_length: how long may x be?")
    return length


def _rate(module):
    """dropout as nn.Dropout or as a number."""
    dropout = getattr(module, "dropout", 0.0)
    return float(getattr(dropout, "p", dropout))


def _widths(linear):
    d_out, d_in = linear.weight.shape
    return d_in, d_out


def _has_bias(module, *projections):
    """Whether the projections have a bias: all or none."""
    found = {p.bias is not None for p in projections}
    if len(found) != 1:
        _refuse(module, "has a bias in some of its projections of q, k and v; all or none is needed")
    return found.pop()


def _raw(module, dtype):
    """W_query, W_key and W_value as matrices, used as x @ W."""
    d_in, d_out = module.W_query.shape
    return SelfAttention(d_in, d_out, form="raw", dtype=dtype, seed=0)


def _one_head(module, dtype):
    d_in, d_out = _widths(module.W_query)
    qkv_bias = _has_bias(module, module.W_query, module.W_key, module.W_value)
    if not hasattr(module, "mask") and not hasattr(module, "dropout"):
        return SelfAttention(d_in, d_out, qkv_bias, dtype=dtype, seed=0)
    return CausalAttention(d_in, d_out, _context_length(module), _rate(module), qkv_bias,
                           dtype=dtype, seed=0)


def _separate(module, dtype):
    """The book's MultiHeadAttention."""
    d_in, d_out = _widths(module.W_query)
    if not hasattr(module, "num_heads"):
        _refuse(module, "has an out_proj and no num_heads: into how many heads is d_out split?")
    return MultiHeadAttention(
        d_in, d_out, _context_length(module), _rate(module), module.num_heads,
        _has_bias(module, module.W_query, module.W_key, module.W_value),
        out_bias=module.out_proj.bias is not None, dtype=dtype, seed=0)


def _wrapper(module, dtype):
    head = module.heads[0]
    d_in, d_out = _widths(head.W_query)
    if len({(_context_length(h), _rate(h)) for h in module.heads}) != 1:
        _refuse(module, "has heads of different context_length or dropout; one for all is needed")
    return HeadWrapper(d_in, d_out, _context_length(head), _rate(head), len(module.heads),
                       _has_bias(module, head.W_query, head.W_key, head.W_value),
                       hasattr(module, "out_proj"), dtype=dtype, seed=0)


def _torch(module, dtype):
    """nn.MultiheadAttention."""
    if module.in_proj_weight is None:
        _refuse(module, f"has kdim ({module.kdim}) or vdim ({module.vdim}) other than embed_dim "
                        f"({module.embed_dim}); one in_proj_weight is needed")
    if module.bias_k is not None:
        _refuse(module, "has add_bias_kv: bias_k and bias_v have no place in the layer")
    if module.add_zero_attn:
        _refuse(module, "has add_zero_attn: the layer attends to no extra zero key")
    has_bias = module.in_proj_bias is not None
    return MultiHeadAttention(
        module.embed_dim, module.embed_dim, 0, module.dropout, module.num_heads, has_bias,
        out_bias=module.out_proj.bias is not None, causal=False, form="torch", dtype=dtype, seed=0)


def _gpt2(module, dtype):
    """Hugging Face's GPT2Attention."""
    if getattr(module, "is_cross_attention", False):
        _refuse(module, "attends to an encoder: the layer cannot hold its q_attn")
    if not module.scale_attn_weights:
        _refuse(module, "has scale_attn_weights=False; the layer scales by 1 / sqrt(head_dim)")
    if module.scale_attn_by_inverse_layer_idx and module.layer_idx != 0:
        _refuse(module, f"has scale_attn_by_inverse_layer_idx at layer {module.layer_idx}; the layer "
                        "scales by 1 / sqrt(head_dim) alone")
    if module.training and module.resid_dropout.p > 0:
        _refuse(module, f"is in training and has resid_dropout ({module.resid_dropout.p}) after the "
                        "projection, which the layer does not have: call eval() or set it to 0")
    return MultiHeadAttention(
        module.embed_dim, module.embed_dim, module.config.n_positions, module.attn_dropout.p,
        module.num_heads, True, form="gpt2", dtype=dtype, seed=0)


def _easy(module, dtype):
    _has_bias(module, module.q_linear, module.k_linear, module.v_linear)
    return EasyMultiHeadAttention(module.q_linear.weight.shape[1], module.num_heads, dtype=dtype,
                                  seed=0)


def _fast(module, dtype):
    return FastMultiHeadAttention(module.qkv_proj.weight.shape[1], module.num_heads, dtype=dtype,
                                  seed=0)


# The attribute that gives a module away, and what makes a layer of it.
_MAKERS = {"in_proj_weight": _torch, "c_attn": _gpt2, "qkv_proj": _fast, "q_linear": _easy,
           "heads": _wrapper}


def _maker(module):
    for attribute, maker in _MAKERS.items():
        if hasattr(module, attribute):
            return maker
    if not hasattr(module, "W_query"):
        known = ", ".join(("W_query", *_MAKERS))
        _refuse(module, f"has no known form: it has none of {known}")
    if not hasattr(module.W_query, "weight"):
        return _raw
    return _separate if hasattr(module, "out_proj") else _one_head


def _own_name(layer, name):
    """The PyTorch module's name for a parameter of the layer."""
    return name.removeprefix(_GPT2_PREFIX) if layer.form == "gpt2" else name


def _check_tensors(module, layer):
    """Every tensor has its place, and every place its tensor."""
    theirs = {name for name, _ in module.named_parameters()}
    theirs |= {n for n, _ in module.named_buffers() if n.split(".")[-1] not in _BUFFERS}
    ours = {_own_name(layer, name) for name in layer.parameters}
    if extra := sorted(theirs - ours):
        _refuse(module, f"has {', '.join(extra)}, which the layer cannot hold")
    if missing := sorted(ours - theirs):
        _refuse(module, f"has no {', '.join(missing)}, which the layer needs")


def from_torch(module):
    """A layer with the parameters of a PyTorch module, copied, in its mode and under its names.

    module: a class of the book (or cephalo.torch's), nn.MultiheadAttention, which becomes a layer
    without a causal mask and with the batch first, or Hugging Face's GPT2Attention. Anything the module does that the
    layer could not is a ValueError that names it.
    """
    layer = _maker(module)(module, _dtype(module))
    _check_tensors(module, layer)
    parameters = dict(module.named_parameters())
    for name in layer.parameters:
        layer.update(name, parameters[_own_name(layer, name)].detach())
    return layer.train() if module.training else layer.eval()


def _masks(layer):
    """The mask buffers of the book's classes."""
    import torch

    if not layer.causal or layer.context_length == 0 or layer.form not in ("separate", "heads"):
        raise ValueError(f"to_torch_state_dict: a layer of form {layer.form}, causal={layer.causal} "
                         f"and context_length={layer.context_length} has no mask buffer")
    mask = torch.triu(torch.ones(layer.context_length, layer.context_length), diagonal=1)
    if layer.form == "separate":
        return {"mask": mask}
    return {f"heads.{head}.mask": mask for head in range(layer.num_heads)}


def to_torch_state_dict(layer, buffers=False):
    """The parameters, copied into tensors, under the PyTorch module's names.

    buffers: include the book's mask, as load_state_dict with strict=True requires. A layer with rotary
    positions, which none of those modules have, is a ValueError.
    """
    if layer.rotary is not None:
        raise ValueError(f"to_torch_state_dict: the layer has {layer.rotary}, and no PyTorch module "
                         f"of form {layer.form} has rotary positions")
    import torch

    state = _masks(layer) if buffers else {}
    dtype = getattr(torch, layer.dtype)
    for name, array in layer.parameters.items():
        memory = array.tobytes() if hasattr(array, "tobytes") else memoryview(array).tobytes()
        flat = torch.frombuffer(bytearray(memory), dtype=dtype)
        state[_own_name(layer, name)] = flat.reshape(array.shape)
    return state


MultiHeadAttention.from_torch = staticmethod(from_torch)
MultiHeadAttention.to_torch_state_dict = to_torch_state_dict
