"""The book's layer as a module of PyTorch."""

import torch
from torch import Tensor, nn

from .sdpa import scaled_dot_product_attention


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
