"""The named tuples that calls with several results return."""

from typing import Any, NamedTuple

# The last axis of row_sums.
ROW_SUMS = ("entropy", "largest", "distance", "previous", "first", "current", "visible", "duplicate",
            "has_duplicate", "induction", "has_induction")


class AttendResult(NamedTuple):
    """What attend returns if you ask for more than context; None for what you did not ask for."""

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


class AttendTangents(NamedTuple):
    """How context and lse move along a direction."""

    tcontext: Any  # [batch, num_heads, q_tokens, v_dim]
    tlse: Any  # [batch, num_heads, q_tokens]


class AttendSecond(NamedTuple):
    """In the shapes of q, k, v, each bias of the mask, context and lse."""

    hq: Any
    hk: Any
    hv: Any
    hbias: list
    hdcontext: Any
    hdlse: Any


class LayerGradients(NamedTuple):
    """In the shapes of x, kv (None without) and the parameters."""

    dx: Any
    dkv: Any
    gradients: Any


class PassHeads(NamedTuple):
    """What the heads of a saved pass used, after rotary."""

    q: Any  # [batch, num_heads, tokens, head_dim]
    k: Any  # [batch, num_kv_heads, kv_tokens, head_dim]
    v: Any  # [batch, num_kv_heads, kv_tokens, v_dim]
    lse: Any  # [batch, num_heads, tokens]
    mask: Any  # a Mask, or None where nothing is hidden


class PooledWeights(NamedTuple):
    """Each [cells, cells]."""

    largest: Any
    mean: Any


class SimpleAttention(NamedTuple):
    """Rung 1."""

    context: Any  # x's shape
    weights: Any  # [tokens, tokens] or [batch, tokens, tokens]


class WindowBatch(NamedTuple):
    """What Windows returns; each int64 [batch, context_length]."""

    inputs: Any
    targets: Any  # one token further on


class TrainPass(NamedTuple):
    """What gpt.train_pass returns."""

    loss: float
    gradients: Any  # GptGradients: name -> array


class TrainRows(NamedTuple):
    """What recipe_rows gives."""

    training: Any  # a RowSource
    validation: Any  # a RowSource, or None


class Generated(NamedTuple):
    """What gpt.generate returns."""

    ids: list  # the new ones, a stop token included
    text: str | None  # of the new ones, without a stop token; None for a model without a tokenizer
    stopped: bool  # by a stop token or by on_token
    prompt_seconds: float  # until the prompt had been read
    seconds: float  # for the new tokens

    @property
    def tokens_per_second(self):
        return len(self.ids) / self.seconds if self.seconds > 0 else 0.0


class Attribution(NamedTuple):
    """What each part adds directly to the logit of a token; it adds up to the logit."""

    position: int
    token: int
    logit: float
    token_embedding: float
    position_embedding: float  # 0 with rotary
    heads: Any  # [num_layers, num_heads]
    out_bias: Any  # [num_layers], of the output projection
    mlp: Any  # [num_layers]
    bias: float  # of the last norm, through the head
    sum: float


class Patching(NamedTuple):
    """How much of the answer comes back: (d - corrupt) / (clean - corrupt), d = logit(answer) - logit(wrong)."""

    clean: float
    corrupt: float
    divided: bool  # False: the two hardly differ, and positions and heads hold d itself
    positions: Any  # [num_layers, tokens]: resid_pre taken from the clean run
    heads: Any  # [num_layers, num_heads]: context at all positions
