"""Attention written out in PyTorch's operations, with every pair of tokens: what results are compared with."""

import torch


def _shared(t, num_heads):
    return t.repeat_interleave(num_heads // t.shape[1], 1)


def scores_of(q, k, bias=None, scale=None, softcap=None):
    """-> [batch, num_heads, q_tokens, kv_tokens]"""
    scores = q @ _shared(k, q.shape[1]).transpose(-1, -2) * (q.shape[-1]**-0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    return scores if bias is None else scores + bias


def attention(q, k, v, visible=None, bias=None, scale=None, softcap=None):
    """visible, bias: broadcast to [batch, num_heads, q_tokens, kv_tokens]
    -> context, lse, weights; a row that sees nothing has 0, -inf and 0"""
    scores = scores_of(q, k, bias, scale, softcap)
    if visible is None:
        visible = torch.ones((), dtype=torch.bool)
    seen = visible.expand(scores.shape)
    top = torch.where(seen, scores, -1e30).amax(-1, keepdim=True).detach()
    powers = torch.where(seen, torch.exp(torch.where(seen, scores - top, 0.0)), 0.0)
    sums = powers.sum(-1, keepdim=True)
    some = sums > 0
    weights = powers / torch.where(some, sums, 1.0)
    lse = torch.where(some, top + torch.log(torch.where(some, sums, 1.0)), -torch.inf)[..., 0]
    return weights @ _shared(v, q.shape[1]), lse, weights


def places(q_tokens, kv_tokens, shift=None):
    """p(i) as a column and j as a row: shift is kv_tokens - q_tokens unless given, a number or [batch]"""
    shift = torch.as_tensor(kv_tokens - q_tokens if shift is None else shift)
    return torch.arange(q_tokens)[:, None] + shift[..., None, None, None], torch.arange(kv_tokens)
