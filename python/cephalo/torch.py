"""PyTorch's attention function and the book's layer, computed by cephalo and trainable.

    from cephalo.torch import MultiHeadAttention            # instead of your own class
    from cephalo.torch import scaled_dot_product_attention  # instead of F's

Tensors must be on the CPU; they are read in place.
"""

import sys

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from . import attend, attend_backward, bias, causal, keep, positions

__all__ = ["MultiHeadAttention", "scaled_dot_product_attention"]

_SDPA = "scaled_dot_product_attention"
_CAUSAL = positions("top_left") & causal()  # PyTorch's alignment: query 0 sees key 0 alone
_CAUSAL_FROM_THE_END = positions("bottom_right") & causal()  # the last query sees the last key
# A Buffer is a plain Tensor. Other subclasses may mean something that their memory does not say.
_TAKEN = (Tensor, nn.Parameter)
_TRAINABLE = (torch.float32, torch.float64)
# After a Linear PyTorch's workers keep their cores busy for a while. A call with fewer
# multiplications than this is over sooner on the core it has than when it asks for another.
_ALONE_BELOW = 1 << 22


def _is_causal_bias(attn_mask):
    """Asked of the module only where somebody has imported it: it is PyTorch's, and experimental."""
    module = sys.modules.get("torch.nn.attention.bias")
    return module is not None and type(attn_mask) is module.CausalBias


def _rule_of(causal_bias, query, key):
    """A CausalBias says by its attributes what it means; its memory was never written to."""
    wanted = (query.shape[-2], key.shape[-2])
    found = (causal_bias.seq_len_q, causal_bias.seq_len_kv)
    if found != wanted:
        raise ValueError(f"{_SDPA}: attn_mask is a CausalBias for {found[0]} queries and {found[1]} "
                         f"keys; there are {wanted[0]} and {wanted[1]}")
    return _CAUSAL if causal_bias.variant.name == "UPPER_LEFT" else _CAUSAL_FROM_THE_END


def _mask(attn_mask, rule):
    """attn_mask: [batch|1, heads|1, q_tokens|1, kv_tokens|1] or None; rule: a Mask instead of it"""
    if attn_mask is None:
        return rule
    return keep(attn_mask) if attn_mask.dtype == torch.bool else bias(attn_mask)


def _context_like(query, value):
    """Memory for context laid out like query, so that heads split by a view can be merged by one."""
    if query.is_contiguous() or query.shape[-1] != value.shape[-1]:
        return None
    return torch.empty_like(query)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, attn_mask, rule, options):
        result = attend(query, key, value, _mask(attn_mask, rule), return_lse=True,
                        out=_context_like(query, value), **options)
        ctx.save_for_backward(query, key, value, attn_mask, result.context, result.lse)
        ctx.rule, ctx.options = rule, options
        return result.context

    @staticmethod
    def backward(ctx, dcontext):
        query, key, value, attn_mask, context, lse = ctx.saved_tensors
        found = _AttentionBackward.apply(query, key, value, attn_mask, context.detach(), lse, dcontext,
                                         ctx.rule, ctx.needs_input_grad[3], ctx.options)
        return *found, None, None


class _AttentionBackward(torch.autograd.Function):
    """A node of the graph that create_graph=True makes. Without one the first derivatives would be
    constants there, and second ones silently 0."""

    @staticmethod
    def forward(ctx, query, key, value, attn_mask, context, lse, dcontext, rule, of_mask, options):
        found = attend_backward(query, key, value, context, lse, dcontext,
                                mask=_mask(attn_mask, rule), with_dbias=of_mask, **options)
        dmask = found.dbias[0].to(attn_mask.dtype) if of_mask else None
        return found.dq, found.dk, found.dv, dmask

    @staticmethod
    def backward(ctx, *second):
        raise NotImplementedError(
            "cephalo.torch: second derivatives are not supported; torch.nn.functional."
            "scaled_dot_product_attention has them under sdpa_kernel(SDPBackend.MATH)")


def _check_kind(name, tensor):
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{_SDPA}: {name} is {_article(type(tensor).__name__)}; a torch.Tensor is "
                        "needed")
    if type(tensor) not in _TAKEN:
        raise TypeError(f"{_SDPA}: {name} is {_article(type(tensor).__name__)}; of the subclasses of "
                        "torch.Tensor only Parameter and Buffer are accepted, and CausalBias as "
                        "attn_mask: others may mean something that their memory does not say")
    if not tensor.is_cpu:
        raise TypeError(f"{_SDPA}: {name} is on device {tensor.device}; cephalo computes on the "
                        "CPU: move it there first")
    if tensor.dim() < 2:
        raise ValueError(f"{_SDPA}: {name} has shape {tuple(tensor.shape)}; at least 2 "
                         "dimensions are needed")
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
        raise NotImplementedError(f"{_SDPA}: {name} carries a forward-mode tangent; cephalo.torch "
                                  "computes derivatives backwards only")


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


def _is_plain(query, key, value, attn_mask):
    """What the engine takes as it is: the usual case, which should not wait for others."""
    shape = query.shape
    if len(shape) != 4 or (attn_mask is not None and attn_mask.dim() != 4):
        return False
    if shape == key.shape == value.shape:
        return True
    return key.dim() == value.dim() == 4 and shape[:2] == key.shape[:2] == value.shape[:2]


def _needs_gradient(query, key, value, attn_mask):
    if not torch.is_grad_enabled():
        return False
    of_mask = attn_mask is not None and attn_mask.requires_grad
    return query.requires_grad or key.requires_grad or value.requires_grad or of_mask


def _threads(query, key):
    """One where PyTorch has one or the work is little, else as many as cephalo has."""
    little = query.numel() * key.shape[-2] < _ALONE_BELOW
    return 1 if little or torch.get_num_threads() == 1 else None


def _attend(query, key, value, attn_mask, rule, options):
    """All of rank 4 -> context [batch, num_heads, q_tokens, v_dim]"""
    options["threads"] = _threads(query, key)
    if not _needs_gradient(query, key, value, attn_mask):
        return attend(query, key, value, _mask(attn_mask, rule),
                      out=_context_like(query, value), **options)
    if query.dtype not in _TRAINABLE:
        raise TypeError(f"{_SDPA}: {query.dtype} has no gradient here; train in torch.float32 or "
                        "torch.float64, or call under torch.no_grad()")
    return _Attention.apply(query, key, value, attn_mask, rule, options)


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

    float32 and float64 have gradients (first derivatives, of a float attn_mask too); float16 and bfloat16 are
    computed without them. dropout_p is in [0, 1), seeded by PyTorch's generator.
    """
    if is_causal and attn_mask is not None:
        raise ValueError(f"{_SDPA}: attn_mask and is_causal=True exclude each other, as in PyTorch")
    by_rule = _is_causal_bias(attn_mask)
    _check(query, key, value, None if by_rule else attn_mask)
    rule = _CAUSAL if is_causal else None
    if by_rule:
        attn_mask, rule = None, _rule_of(attn_mask, query, key)
    options = {"scale": scale}
    if dropout_p != 0.0:
        options |= {"dropout": dropout_p, "seed": int(torch.randint(1 << 62, ()))}
    if _is_plain(query, key, value, attn_mask):
        return _attend(query, key, value, attn_mask, rule, options)
    rank = max(query.dim(), key.dim(), value.dim())
    query, key, value, attn_mask, lead = _broadcast(query, key, value, attn_mask, enable_gqa)
    context = _attend(query, key, value, attn_mask, rule, options)
    return context.reshape(*lead, *context.shape[-2:]) if rank > 2 else context[0, 0]


class MultiHeadAttention(nn.Module):
    """The book's class, computed by cephalo: the same arguments, parameters and state dict.

    x: [batch, tokens, d_in] or [tokens, d_in] -> the same with d_out
    """

    def __init__(self, d_in: int, d_out: int, context_length: int, dropout: float, num_heads: int,
                 qkv_bias: bool = False):
        super().__init__()
        if num_heads < 1 or d_out % num_heads != 0:
            raise ValueError(f"MultiHeadAttention: d_out ({d_out}) must be divisible by num_heads "
                             f"({num_heads})")
        self.d_out, self.num_heads, self.head_dim = d_out, num_heads, d_out // num_heads
        # In the book's order, so that torch.manual_seed gives the same parameters.
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        # Nothing here reads it: it is a part of the state dict, and says what context_length is.
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length),
                                                diagonal=1))

    def _heads(self, projected):
        """[..., tokens, d_out] -> [..., num_heads, tokens, head_dim], a view"""
        return projected.unflatten(-1, (self.num_heads, self.head_dim)).transpose(-3, -2)

    def forward(self, x: Tensor) -> Tensor:
        tokens, context_length = x.shape[-2], self.mask.shape[0]
        if tokens > context_length:
            raise ValueError(f"MultiHeadAttention: {tokens} tokens are more than context_length "
                             f"({context_length})")
        context = scaled_dot_product_attention(
            self._heads(self.W_query(x)), self._heads(self.W_key(x)), self._heads(self.W_value(x)),
            dropout_p=self.dropout.p if self.training else 0.0, is_causal=True)
        return self.out_proj(context.transpose(-3, -2).flatten(-2))

    def extra_repr(self):
        return f"num_heads={self.num_heads}, context_length={self.mask.shape[0]}"
