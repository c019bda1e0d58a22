"""The rungs of the ladder as plain PyTorch modules, to compare cephalo with.

Names of parameters, order of construction and arithmetic are those of the classes that readers of
"Build a Large Language Model (From Scratch)" have in front of them.
"""

import math

import torch
from torch import nn


def hide_future(scores, context_length):
    tokens_q, tokens_k = scores.shape[-2:]
    future = torch.triu(torch.ones(context_length, context_length), diagonal=1).bool()
    return scores.masked_fill(future[:tokens_q, :tokens_k], -torch.inf)


class SelfAttentionRaw(nn.Module):
    """Rung 2 with matrices drawn by torch.rand, used as x @ W."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.W_query = nn.Parameter(torch.rand(d_in, d_out))
        self.W_key = nn.Parameter(torch.rand(d_in, d_out))
        self.W_value = nn.Parameter(torch.rand(d_in, d_out))

    def forward(self, x):
        q, k, v = x @ self.W_query, x @ self.W_key, x @ self.W_value
        weights = torch.softmax(q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5, dim=-1)
        return weights @ v


class SelfAttention(nn.Module):
    """Rung 2 with Linear projections."""

    def __init__(self, d_in, d_out, qkv_bias=False):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)

    def forward(self, x):
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
        weights = torch.softmax(q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5, dim=-1)
        return weights @ v


class CausalAttention(nn.Module):
    """Rung 3."""

    def __init__(self, d_in, d_out, context_length, dropout, qkv_bias=False):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.dropout = nn.Dropout(dropout)
        self.context_length = context_length

    def forward(self, x):
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
        scores = hide_future(q @ k.transpose(1, 2), self.context_length)
        weights = self.dropout(torch.softmax(scores / k.shape[-1] ** 0.5, dim=-1))
        return weights @ v


class HeadWrapper(nn.Module):
    """Rung 4."""

    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False,
                 out_proj=False):
        super().__init__()
        self.heads = nn.ModuleList(
            [CausalAttention(d_in, d_out, context_length, dropout, qkv_bias)
             for _ in range(num_heads)])
        if out_proj:
            self.out_proj = nn.Linear(d_out * num_heads, d_out * num_heads)

    def forward(self, x):
        context = torch.cat([head(x) for head in self.heads], dim=-1)
        return self.out_proj(context) if hasattr(self, "out_proj") else context


class MultiHeadAttention(nn.Module):
    """Rung 5."""

    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.context_length = context_length

    def forward(self, x):
        batch, tokens, _ = x.shape
        split = lambda t: t.view(batch, tokens, self.num_heads, self.head_dim).transpose(1, 2)
        q, k, v = split(self.W_query(x)), split(self.W_key(x)), split(self.W_value(x))
        scores = hide_future(q @ k.transpose(2, 3), self.context_length)
        weights = self.dropout(torch.softmax(scores / self.head_dim ** 0.5, dim=-1))
        context = (weights @ v).transpose(1, 2).contiguous().view(batch, tokens, -1)
        return self.out_proj(context)


class EasyMultiHeadAttention(nn.Module):
    """Rung 6."""

    def __init__(self, d_model=8, num_heads=2):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.q_linear = nn.Linear(d_model, d_model)
        self.k_linear = nn.Linear(d_model, d_model)
        self.v_linear = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        batch, tokens, _ = x.shape
        split = lambda t: t.view(batch, tokens, self.num_heads, self.head_dim).transpose(1, 2)
        q, k, v = split(self.q_linear(x)), split(self.k_linear(x)), split(self.v_linear(x))
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(self.head_dim), dim=-1)
        context = (weights @ v).transpose(1, 2).contiguous().view(batch, tokens, -1)
        return self.out_proj(context)


class FastMultiHeadAttention(nn.Module):
    """Rung 7: mask 0 = hidden."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        batch, tokens, _ = x.shape
        split = lambda t: t.view(batch, tokens, self.num_heads, self.head_dim).transpose(1, 2)
        q, k, v = (split(t) for t in self.qkv_proj(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -torch.inf)
        context = torch.softmax(scores, dim=-1) @ v
        return self.out_proj(context.transpose(1, 2).contiguous().view(batch, tokens, -1))


def build(rung, d_in, d_out, num_heads, context_length, dropout=0.0, qkv_bias=False, raw=False):
    """The module of a rung; d_out is the width of one head in rung 4."""
    if rung == 2:
        return SelfAttentionRaw(d_in, d_out) if raw else SelfAttention(d_in, d_out, qkv_bias)
    if rung == 3:
        return CausalAttention(d_in, d_out, context_length, dropout, qkv_bias)
    if rung == 4:
        return HeadWrapper(d_in, d_out, context_length, dropout, num_heads, qkv_bias)
    if rung == 5:
        return MultiHeadAttention(d_in, d_out, context_length, dropout, num_heads, qkv_bias)
    if rung == 6:
        return EasyMultiHeadAttention(d_out, num_heads)
    if rung == 7:
        return FastMultiHeadAttention(d_out, num_heads)
    raise ValueError(f"rung {rung} has no module")
