"""The guided exercise: attention written by the reader, checked step by step (cephalo.check)."""

from typing import Any, NamedTuple

from . import _cephalo


class Exercise(NamedTuple):
    """One small layer and its input. All sizes differ, so an axis in the wrong place is noticed."""

    x: Any  # [batch, tokens, d_in]
    W_query: Any  # [d_out, d_in], out x in as PyTorch's: q = x @ W_query.T
    W_key: Any
    W_value: Any
    out_weight: Any  # [d_out, d_out]
    out_bias: Any  # [d_out]
    batch: int
    tokens: int
    d_in: int
    d_out: int
    num_heads: int
    head_dim: int
    seed: int


def exercise():
    """Always the same numbers; cephalo.check(step, array) knows the answers."""
    return Exercise(**_cephalo.exercise())
