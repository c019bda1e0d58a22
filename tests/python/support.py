"""Attention written out with NumPy in float64: what the engine is compared with."""

import numpy as np


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def causal(q_tokens, kv_tokens):
    """[q_tokens, kv_tokens], True where visible, the last query at the last key."""
    i, j = np.ogrid[:q_tokens, :kv_tokens]
    return j <= i + kv_tokens - q_tokens


def attention(q, k, v, visible=None, bias=None):
    """q: [..., q_tokens, head_dim], k and v: [..., kv_tokens, dim] -> context, weights"""
    q, k, v = (np.asarray(a).astype(np.float64) for a in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(axis=-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return weights @ v, weights
