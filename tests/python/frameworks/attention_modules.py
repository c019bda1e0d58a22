"""Attention as other people's PyTorch code has it: the attributes of well-known classes, with plain forwards."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def future(tokens):
    return torch.ones(tokens, tokens, dtype=torch.bool).triu(1)


def split(x, num_heads):
    """[batch, tokens, width] -> [batch, num_heads, tokens, head_dim]"""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def merge(context):
    return context.transpose(1, 2).flatten(2)


def textbook(q, k, v, dropout=lambda weights: weights):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return dropout(scores.masked_fill(future(q.shape[-2]), -torch.inf).softmax(-1)) @ v


class NanoGPTAttention(nn.Module):
    """nanoGPT's CausalSelfAttention; without flash it keeps a mask."""

    def __init__(self, n_embd=8, n_head=2, block_size=16, dropout=0.0, bias=True, flash=True):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=bias)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=bias)
        self.attn_dropout, self.resid_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        self.n_head, self.n_embd, self.dropout, self.flash = n_head, n_embd, dropout, flash
        if not flash:
            self.register_buffer("bias", (~future(block_size)).float()[None, None])

    def forward(self, x):
        q, k, v = (split(part, self.n_head) for part in self.c_attn(x).split(self.n_embd, -1))
        context = (F.scaled_dot_product_attention(q, k, v, is_causal=True) if self.flash else
                   textbook(q, k, v, self.attn_dropout))
        return self.resid_dropout(self.c_proj(merge(context)))


class MinGPTAttention(nn.Module):
    """minGPT's CausalSelfAttention."""

    def __init__(self, n_embd=8, n_head=2, block_size=16, dropout=0.0):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.attn_dropout, self.resid_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        self.register_buffer("bias", (~future(block_size)).float()[None, None])
        self.n_head, self.n_embd = n_head, n_embd

    def forward(self, x):
        q, k, v = (split(part, self.n_head) for part in self.c_attn(x).chunk(3, -1))
        return self.resid_dropout(self.c_proj(merge(textbook(q, k, v, self.attn_dropout))))


class FirstMinGPTAttention(nn.Module):
    """minGPT's class as it first was."""

    def __init__(self, n_embd=8, n_head=2, block_size=16, dropout=0.0):
        super().__init__()
        self.key, self.query, self.value, self.proj = (nn.Linear(n_embd, n_embd) for _ in range(4))
        self.attn_drop, self.resid_drop = nn.Dropout(dropout), nn.Dropout(dropout)
        self.register_buffer("mask", (~future(block_size)).float()[None, None])
        self.n_head = n_head

    def forward(self, x):
        q, k, v = (split(project(x), self.n_head) for project in (self.query, self.key, self.value))
        return self.resid_drop(self.proj(merge(textbook(q, k, v, self.attn_drop))))


class _Combined(nn.Module):
    """The book's bonus classes with one projection for q, k and v."""

    def __init__(self, d_in=8, d_out=6, num_heads=2, context_length=16, dropout=0.0, qkv_bias=False):
        super().__init__()
        self.num_heads, self.head_dim, self.d_out = num_heads, d_out // num_heads, d_out
        self.context_length = context_length
        self.qkv, self.proj = nn.Linear(d_in, 3 * d_out, bias=qkv_bias), nn.Linear(d_out, d_out)
        self.dropout = dropout

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(merge(self.attend(q, k, v)))


class CombinedQKV(_Combined):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.dropout = nn.Dropout(self.dropout)
        self.register_buffer("mask", future(self.context_length).float())

    def attend(self, q, k, v):
        return textbook(q, k, v, self.dropout)


class PyTorchSDPA(_Combined):
    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class PyTorchSDPAWithoutFlash(_Combined):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.register_buffer("mask", future(self.context_length))

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, ~self.mask[:q.shape[2], :q.shape[2]])


class PyTorchFlexAttention(_Combined):
    def attend(self, q, k, v):
        tokens = q.shape[2]
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, tokens, tokens, device="cpu")
        return flex_attention(q, k, v, block_mask=mask)


class Einsum(nn.Module):
    def __init__(self, d_in=8, d_out=6, num_heads=2, context_length=16, dropout=0.0, qkv_bias=False):
        super().__init__()
        self.num_heads, self.d_out = num_heads, d_out
        for name in ("query", "key", "value"):
            setattr(self, f"W_{name}", nn.Parameter(torch.randn(d_in, d_out)))
            bias = nn.Parameter(torch.randn(d_out)) if qkv_bias else None
            self.register_parameter(f"bias_{name[0]}", bias)
        self.out_proj, self.dropout = nn.Linear(d_out, d_out), nn.Dropout(dropout)
        self.register_buffer("mask", future(context_length).float())

    def project(self, x, name):
        projected = torch.einsum("bnd,do->bno", x, getattr(self, f"W_{name}"))
        bias = getattr(self, f"bias_{name[0]}")
        return split(projected if bias is None else projected + bias, self.num_heads)

    def forward(self, x):
        q, k, v = (self.project(x, name) for name in ("query", "key", "value"))
        return self.out_proj(merge(textbook(q, k, v, self.dropout)))


class PyTorchClass(nn.Module):
    """nn.MultiheadAttention with a mask and a projection of its own."""

    def __init__(self, d_out=8, num_heads=2, context_length=16, dropout=0.0, qkv_bias=False, need_weights=True,
                 add_bias_kv=False):
        super().__init__()
        self.context_length, self.need_weights = context_length, need_weights
        self.multihead_attn = nn.MultiheadAttention(d_out, num_heads, dropout=dropout, bias=qkv_bias,
                                                    add_bias_kv=add_bias_kv, batch_first=True)
        self.proj = nn.Linear(d_out, d_out)
        self.register_buffer("mask", future(context_length))

    def forward(self, x):
        mask = self.mask[:x.shape[1], :x.shape[1]]
        return self.proj(self.multihead_attn(x, x, x, attn_mask=mask, need_weights=self.need_weights)[0])


class SharedHeads(nn.Module):
    """The book's class with fewer heads of keys and values."""

    def __init__(self, d_in=8, d_out=8, context_length=16, num_heads=4, num_kv_groups=2):
        super().__init__()
        self.num_heads, self.num_kv_groups, self.context_length = num_heads, num_kv_groups, context_length
        narrow = d_out // num_heads * num_kv_groups
        self.W_query, self.out_proj = nn.Linear(d_in, d_out), nn.Linear(d_out, d_out)
        self.W_key, self.W_value = nn.Linear(d_in, narrow), nn.Linear(d_in, narrow)

    def forward(self, x):
        q, k, v = split(self.W_query(x), self.num_heads), self.W_key(x), self.W_value(x)
        k, v = (split(t, self.num_kv_groups).repeat_interleave(self.num_heads // self.num_kv_groups, 1)
                for t in (k, v))
        return self.out_proj(merge(textbook(q, k, v)))


class LlamaStyle(nn.Module):
    """Grouped heads with rotary positions, halves of a head turned as pairs."""

    def __init__(self, width=16, num_heads=4, num_key_value_heads=2, rope_theta=10000.0, bias=False):
        super().__init__()
        self.num_heads, self.num_key_value_heads = num_heads, num_key_value_heads
        self.head_dim, self.rope_theta = width // num_heads, rope_theta
        self.q_proj, self.o_proj = nn.Linear(width, width, bias=bias), nn.Linear(width, width, bias=False)
        narrow = num_key_value_heads * self.head_dim
        self.k_proj, self.v_proj = nn.Linear(width, narrow, bias=bias), nn.Linear(width, narrow, bias=bias)

    def turn(self, heads):
        half = self.head_dim // 2
        angle = torch.arange(heads.shape[2], dtype=torch.float64)[:, None] * self.rope_theta ** (
            -torch.arange(half, dtype=torch.float64) / half)
        cos, sin = angle.cos().to(heads.dtype), angle.sin().to(heads.dtype)
        a, b = heads[..., :half], heads[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def forward(self, x):
        q = self.turn(split(self.q_proj(x), self.num_heads))
        k = self.turn(split(self.k_proj(x), self.num_key_value_heads))
        v = split(self.v_proj(x), self.num_key_value_heads)
        k, v = (t.repeat_interleave(self.num_heads // self.num_key_value_heads, 1) for t in (k, v))
        return self.o_proj(merge(textbook(q, k, v)))
