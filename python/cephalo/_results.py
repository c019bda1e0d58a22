"""The named tuples that calls with several results give."""

from typing import Any, NamedTuple

# The last axis of row_sums.
ROW_SUMS = ("entropy", "largest", "distance", "previous", "first", "current", "visible", "duplicate",
            "has_duplicate", "induction", "has_induction")


class AttendResult(NamedTuple):
    """What attend returns when more than context was asked for; None where not asked for."""

    context: Any  # [batch, num_heads, q_tokens, v_dim]
    lse: Any  # [batch, num_heads, q_tokens]
    weights: Any  # [batch, num_heads, q_tokens, kv_tokens]
    scores: Any  # the same shape


class AttendGradients(NamedTuple):
    """In the shapes of q, k, v and of each bias of the mask."""

    dq: Any
    dk: Any
    dv: Any
    dbias: list


class LayerGradients(NamedTuple):
    """In the shapes of x, kv (None without) and the parameters."""

    dx: Any
    dkv: Any
    gradients: Any


class PooledWeights(NamedTuple):
    """Each [cells, cells]."""

    largest: Any
    mean: Any


class SimpleAttention(NamedTuple):
    """Rung 1."""

    context: Any  # x's shape
    weights: Any  # [tokens, tokens] or [batch, tokens, tokens]
