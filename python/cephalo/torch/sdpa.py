"""torch.nn.functional.scaled_dot_product_attention, by cephalo."""

import sys

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.overrides import handle_torch_function, has_torch_function, has_torch_function_variadic

from .. import causal, positions
from . import _doors, _engine, _ops, _refusals
from ._refusals import SDPA as _SDPA
from ._refusals import ArgumentError

_CAUSAL = repr(positions("top_left") & causal())  # PyTorch's alignment: query 0 sees key 0 alone
_CAUSAL_FROM_THE_END = repr(positions("bottom_right") & causal())  # the last query sees the last key
# By int(is_causal), since torch.compile does not know that a bool is an index; made once, for most calls.
_RULES = _engine.Rule(""), _engine.Rule(_CAUSAL)
_any_autocast_enabled = torch._C._is_any_autocast_enabled  # on any device: half the time of asking for two


def _causal_bias():
    """The class, where somebody has imported it: it is PyTorch's, and experimental."""
    module = sys.modules.get("torch.nn.attention.bias")
    return None if module is None else module.CausalBias


def _rule_of(causal_bias, query, key):
    """A CausalBias says by its attributes what it means; its memory was never written to."""
    wanted = (query.shape[-2], key.shape[-2])
    found = (causal_bias.seq_len_q, causal_bias.seq_len_kv)
    if found != wanted:
        raise ArgumentError(f"{_SDPA}: attn_mask is a CausalBias for {found[0]} queries and {found[1]} "
                         f"keys; there are {wanted[0]} and {wanted[1]}")
    return _CAUSAL if causal_bias.variant.name == "UPPER_LEFT" else _CAUSAL_FROM_THE_END


def _autocasts():
    if not torch.compiler.is_compiling():
        return _any_autocast_enabled()
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


def _lowered(tensor):
    """As autocast hands it to PyTorch's function: in its device's type, but float64 stays. A CausalBias is a rule,
    not numbers."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        return tensor
    device = "cuda" if tensor.is_cuda else "cpu"
    if not (tensor.is_cuda or tensor.is_cpu) or not torch.is_autocast_enabled(device):
        return tensor
    if tensor.dtype is torch.float64 or type(tensor) is _causal_bias():
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))


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
        raise ArgumentError(f"{_SDPA}: query has {num_heads} heads and {name} {heads}; {way_out}")


def _flat(tensor, batch, heads):
    """[..., heads|1, a, b] -> [batch, heads, a, b], a view where strides allow. No heads become a batch of
    none, which the engine takes."""
    tail = tensor.shape[-2:]
    whole = tensor.expand(*batch, heads, *tail)
    return whole.reshape(0, 1, *tail) if heads == 0 else whole.reshape(batch.numel(), heads, *tail)


def _flat_mask(attn_mask, batch):
    """[..., heads|1, q_tokens|1, kv_tokens|1] -> rank 4; 1 batch where it is the same in all"""
    attn_mask = attn_mask[(None,) * max(0, len(batch) + 3 - attn_mask.dim())]
    same = all(size == 1 for size in attn_mask.shape[:-3])
    if not same and attn_mask.dim() > len(batch) + 3:
        raise ArgumentError(f"{_SDPA}: attn_mask has shape {tuple(attn_mask.shape)}, which has more dimensions "
                            f"than the scores, {len(batch) + 3}")
    lead = torch.Size([1] * (attn_mask.dim() - 3)) if same else batch
    return _flat(attn_mask, lead, attn_mask.shape[-3])


def _batch_of(query, key, value):
    try:
        return torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    except RuntimeError as error:
        raise ArgumentError(f"{_SDPA}: query {tuple(query.shape)}, key {tuple(key.shape)} and value "
                            f"{tuple(value.shape)} do not broadcast before their heads") from error


def _broadcast(query, key, value, attn_mask, enable_gqa):
    """Any ranks from 2 -> the same of rank 4, and the leading dimensions they had."""
    query, key, value = (t[None] if t.dim() == 2 else t for t in (query, key, value))
    _check_heads(query, key, value, enable_gqa)
    batch = _batch_of(query, key, value)
    all_heads = query.shape[-3], key.shape[-3], value.shape[-3]
    heads = max(all_heads) if min(all_heads) > 0 else 0
    kv_heads = min(heads, max(all_heads[1:]))
    if min(all_heads[1:]) not in (1, kv_heads):  # two ways of sharing heads
        key, value = (t.repeat_interleave(heads // t.shape[-3], -3) for t in (key, value))
        kv_heads = heads
    if attn_mask is not None:
        attn_mask = _flat_mask(attn_mask, batch)
        attn_mask = attn_mask[:0] if heads == 0 else attn_mask
    return (_flat(query, batch, heads), _flat(key, batch, kv_heads), _flat(value, batch, kv_heads),
            attn_mask, (*batch, heads))


def _is_usual(query, key, value):
    """What the engine takes as it is: the usual case, which should not wait for the others."""
    if not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)):
        return False
    if query.is_cpu:
        if not (key.is_cpu and value.is_cpu):
            return False
    elif not query.is_cuda or not query.device == key.device == value.device:
        return False
    if not query.dtype is key.dtype is value.dtype:
        return False
    shape, of_key, of_value = query.shape, key.shape, value.shape
    if len(shape) != 4 or shape[1] == 0 or shape[3] == 0:
        return False
    if shape == of_key == of_value:
        return True
    return len(of_key) == len(of_value) == 4 and shape[:2] == of_key[:2] == of_value[:2]


def _nothing_visible(query, attn_mask):
    """What remains where everything is dropped; a float attn_mask gets its gradient, which is 0."""
    if attn_mask is None or attn_mask.dtype is torch.bool:
        return torch.zeros(1, 1, dtype=torch.bool, device=query.device)
    return attn_mask.masked_fill(torch.ones((), dtype=torch.bool, device=query.device), -torch.inf)


def _general(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """The rest of scaled_dot_product_attention: masks, other ranks, heads that broadcast, tensors of size 0."""
    if is_causal and attn_mask is not None:
        raise ArgumentError(f"{_SDPA}: attn_mask and is_causal=True exclude each other, as in PyTorch")
    by_rule = attn_mask is not None and type(attn_mask) is _causal_bias()
    tensors = (query, key, value) if by_rule or attn_mask is None else (query, key, value, attn_mask)
    if has_torch_function(tensors):
        _refusals.refuse_causal_bias(_causal_bias(), query=query, key=key, value=value,
                                     attn_mask=None if by_rule else attn_mask)
        return handle_torch_function(scaled_dot_product_attention, tensors, query, key, value, attn_mask,
                                     dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    is_usual = _is_usual(query, key, value)
    if not is_usual:
        _refusals.check(query, key, value)
    text = _RULES[int(is_causal)].mask
    if by_rule:
        attn_mask, text = None, _rule_of(attn_mask, query, key)
    elif attn_mask is not None:
        _refusals.check_mask(attn_mask, query)
    if dropout_p == 1.0:
        attn_mask, text, dropout_p = _nothing_visible(query, attn_mask), "", 0.0
    if attn_mask is not None:
        text = " | keep" if attn_mask.dtype == torch.bool else " | bias"
    rule = _engine.Rule(text, scale, None, dropout_p)
    if is_usual and (attn_mask is None or attn_mask.dim() == 4):
        return _doors.context(query, key, value, rule, () if attn_mask is None else (attn_mask,))
    rank = max(query.dim(), key.dim(), value.dim())
    query, key, value, attn_mask, lead = _broadcast(query, key, value, attn_mask, enable_gqa)
    if query.shape[-1] == 0 == key.shape[-1]:  # scores of 0, as a column of zeros gives
        query, key, rule = pad(query, (0, 1)), pad(key, (0, 1)), rule._replace(scale=1.0)
    tensors = () if attn_mask is None else (attn_mask,)
    context = (_ops.attend(query, key, value, rule, None, tensors)[0] if query.is_meta else
               _doors.context(query, key, value, rule, tensors))
    return context.reshape(*lead, *context.shape[-2:]) if rank > 2 else context[0, 0]


def _again(error, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """Of tensors that stand for the negative of their memory, which the engine reads as it is; other errors are
    explained."""
    tensors = {"query": query, "key": key, "value": value, "attn_mask": attn_mask}
    given = [t for t in tensors.values() if isinstance(t, Tensor) and not t.is_nested]
    if not any(t.layout is torch.strided and t.is_neg() for t in given):
        _refusals.explain(error, tensors, dropout_p, is_causal, scale)
    resolved = {name: t.resolve_neg() if isinstance(t, Tensor) else t for name, t in tensors.items()}
    return scaled_dot_product_attention(**resolved, dropout_p=dropout_p, is_causal=is_causal, scale=scale,
                                        enable_gqa=enable_gqa)


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
    bfloat16 are computed in float32, results and gradients rounded once. dropout_p is in [0, 1], seeded by
    PyTorch's generator.
    Errors are of PyTorch's classes and of cephalo's: RuntimeError and ValueError or TypeError.
    """
    try:
        if _autocasts():
            query, key, value, attn_mask = map(_lowered, (query, key, value, attn_mask))
        if attn_mask is None and not has_torch_function_variadic(query, key, value) and _is_usual(query, key, value):
            if scale is None and dropout_p == 0.0:
                return _doors.context(query, key, value, _RULES[int(is_causal)], ())
            if dropout_p != 1.0:
                rule = _engine.Rule(_RULES[int(is_causal)].mask, scale, None, dropout_p)
                return _doors.context(query, key, value, rule, ())
        return _general(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    except (TypeError, ValueError, RuntimeError) as error:
        return _again(error, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
