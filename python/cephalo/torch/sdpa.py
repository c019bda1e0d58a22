"""torch.nn.functional.scaled_dot_product_attention, by cephalo."""

import sys

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from .. import causal, positions
from . import _doors, _engine

_SDPA = "scaled_dot_product_attention"
_CAUSAL = repr(positions("top_left") & causal())  # PyTorch's alignment: query 0 sees key 0 alone
_CAUSAL_FROM_THE_END = repr(positions("bottom_right") & causal())  # the last query sees the last key
_ALL, _TOP_LEFT = _engine.Rule(""), _engine.Rule(_CAUSAL)  # made once, for most calls


def _causal_bias():
    """The class, where somebody has imported it: it is PyTorch's, and experimental."""
    module = sys.modules.get("torch.nn.attention.bias")
    return None if module is None else module.CausalBias


def _refuse_causal_bias(**tensors):
    """Its memory was never written to: as anything but a rule it would be read as noise."""
    for name, tensor in tensors.items():
        if _causal_bias() is not None and isinstance(tensor, _causal_bias()):
            raise TypeError(f"{_SDPA}: {name} is {_article(type(tensor).__name__)}; only attn_mask may be a "
                            "CausalBias")


def _rule_of(causal_bias, query, key):
    """A CausalBias says by its attributes what it means; its memory was never written to."""
    wanted = (query.shape[-2], key.shape[-2])
    found = (causal_bias.seq_len_q, causal_bias.seq_len_kv)
    if found != wanted:
        raise ValueError(f"{_SDPA}: attn_mask is a CausalBias for {found[0]} queries and {found[1]} "
                         f"keys; there are {wanted[0]} and {wanted[1]}")
    return _CAUSAL if causal_bias.variant.name == "UPPER_LEFT" else _CAUSAL_FROM_THE_END


def _check_kind(name, tensor):
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{_SDPA}: {name} is {_article(type(tensor).__name__)}; a torch.Tensor is "
                        "needed")
    if not tensor.is_cpu:
        raise TypeError(f"{_SDPA}: {name} is on device {tensor.device}; cephalo computes on the "
                        "CPU: move it there first")
    if tensor.dim() < 2:
        raise ValueError(f"{_SDPA}: {name} has shape {tuple(tensor.shape)}; at least 2 "
                         "dimensions are needed")

def _article(noun):
    vowel = noun[0] in "aeiouAEIOU" or noun.startswith("nd")  # "an ndarray"
    return f"{'an' if vowel else 'a'} {noun}"


def _check(query, key, value, attn_mask):
    """The rules of PyTorch that the engine does not have."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        _check_kind(name, tensor)
    if not query.dtype == key.dtype == value.dtype:
        raise TypeError(f"{_SDPA}: query, key and value must be of one dtype; they are "
                        f"{query.dtype}, {key.dtype} and {value.dtype}")
    if attn_mask is None:
        return
    _check_kind("attn_mask", attn_mask)
    if attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
        raise TypeError(f"{_SDPA}: attn_mask is of dtype {attn_mask.dtype}; supported are torch.bool, "
                        f"torch.float32 and query's {query.dtype}")


def _lowered(tensor):
    """As autocast hands it to PyTorch's function: in its type, but float64 stays. A CausalBias is a rule, not
    numbers."""
    if not isinstance(tensor, Tensor) or not tensor.is_cpu or not tensor.is_floating_point():
        return tensor
    if tensor.dtype is torch.float64 or type(tensor) is _causal_bias():
        return tensor
    return tensor.to(torch.get_autocast_dtype("cpu"))


def _check_heads(query, key, value, enable_gqa):
    """Without enable_gqa heads broadcast; the engine would share any that divide."""
    num_heads = query.shape[-3]
    for name, heads in (("key", key.shape[-3]), ("value", value.shape[-3])):
        if 1 in (heads, num_heads) or heads == num_heads:
            continue
        if enable_gqa and heads > 0 and num_heads % heads == 0:
            continue
        way_out = ("query's must be a multiple of them" if enable_gqa else
                   "enable_gqa=True lets heads of query share them")
        raise ValueError(f"{_SDPA}: query has {num_heads} heads and {name} {heads}; {way_out}")


def _flat(tensor, batch, heads):
    """[..., heads|1, a, b] -> [batch, heads, a, b], a view where strides allow"""
    tail = (heads, *tensor.shape[-2:])
    return tensor.expand(*batch, *tail).reshape(batch.numel(), *tail)


def _flat_mask(attn_mask, batch):
    """[..., heads|1, q_tokens|1, kv_tokens|1] -> rank 4; 1 batch where it is the same in all"""
    attn_mask = attn_mask[(None,) * max(0, len(batch) + 3 - attn_mask.dim())]
    same = all(size == 1 for size in attn_mask.shape[:-3])
    lead = torch.Size([1] * (attn_mask.dim() - 3)) if same else batch
    return _flat(attn_mask, lead, attn_mask.shape[-3])


def _broadcast(query, key, value, attn_mask, enable_gqa):
    """Any ranks from 2 -> the same of rank 4, and the leading dimensions they had."""
    query, key, value = (t[None] if t.dim() == 2 else t for t in (query, key, value))
    _check_heads(query, key, value, enable_gqa)
    batch = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    heads = max(query.shape[-3], key.shape[-3], value.shape[-3])
    kv_heads = max(key.shape[-3], value.shape[-3])
    if min(key.shape[-3], value.shape[-3]) not in (1, kv_heads):  # two ways of sharing heads
        key, value = (t.repeat_interleave(heads // t.shape[-3], -3) for t in (key, value))
        kv_heads = heads
    if attn_mask is not None:
        attn_mask = _flat_mask(attn_mask, batch)
    return (_flat(query, batch, heads), _flat(key, batch, kv_heads), _flat(value, batch, kv_heads),
            attn_mask, (*batch, heads))


def _is_usual(query, key, value):
    """What the engine takes as it is: the usual case, which should not wait for the others."""
    if not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)):
        return False
    if not (query.is_cpu and key.is_cpu and value.is_cpu and query.dtype is key.dtype is value.dtype):
        return False
    shape, of_key, of_value = query.shape, key.shape, value.shape
    if shape == of_key == of_value:
        return len(shape) == 4
    return len(shape) == len(of_key) == len(of_value) == 4 and shape[:2] == of_key[:2] == of_value[:2]


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor,
                                 attn_mask: Tensor | None = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention, by cephalo.

    query: [..., num_heads, q_tokens, head_dim]
    key: [..., num_heads, kv_tokens, head_dim], with enable_gqa num_heads may be a divisor
    value: [..., num_heads, kv_tokens, v_dim]
    attn_mask: broadcasts to [..., num_heads, q_tokens, kv_tokens]; bool: True may look; float: added;
        or a CausalBias of torch.nn.attention.bias
    is_causal: query i sees keys 0 ... i
    -> [..., num_heads, q_tokens, v_dim]

    There are first and second derivatives, backward and forward, of a float attn_mask too. float16 and
    bfloat16 are computed in float32, results and gradients rounded once. dropout_p is in [0, 1), seeded by
    PyTorch's generator.
    """
    if torch.is_autocast_enabled("cpu"):
        query, key, value, attn_mask = map(_lowered, (query, key, value, attn_mask))
    if attn_mask is None and not has_torch_function((query, key, value)) and _is_usual(query, key, value):
        if scale is None and dropout_p == 0.0:
            rule = _TOP_LEFT if is_causal else _ALL
        else:
            rule = _engine.Rule(_CAUSAL if is_causal else "", scale, None, dropout_p)
        return _doors.context(query, key, value, rule, ())
    if is_causal and attn_mask is not None:
        raise ValueError(f"{_SDPA}: attn_mask and is_causal=True exclude each other, as in PyTorch")
    by_rule = attn_mask is not None and type(attn_mask) is _causal_bias()
    tensors = (query, key, value) if by_rule or attn_mask is None else (query, key, value, attn_mask)
    if has_torch_function(tensors):
        _refuse_causal_bias(query=query, key=key, value=value, attn_mask=None if by_rule else attn_mask)
        return handle_torch_function(scaled_dot_product_attention, tensors, query, key, value, attn_mask,
                                     dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    _check(query, key, value, None if by_rule else attn_mask)
    text = _CAUSAL if is_causal else ""
    if by_rule:
        attn_mask, text = None, _rule_of(attn_mask, query, key)
    elif attn_mask is not None:
        text = " | keep" if attn_mask.dtype == torch.bool else " | bias"
    rule = _engine.Rule(text, scale, None, dropout_p)
    if _is_usual(query, key, value) and (attn_mask is None or attn_mask.dim() == 4):
        return _doors.context(query, key, value, rule, () if attn_mask is None else (attn_mask,))
    rank = max(query.dim(), key.dim(), value.dim())
    query, key, value, attn_mask, lead = _broadcast(query, key, value, attn_mask, enable_gqa)
    context = _doors.context(query, key, value, rule, () if attn_mask is None else (attn_mask,))
    return context.reshape(*lead, *context.shape[-2:]) if rank > 2 else context[0, 0]
