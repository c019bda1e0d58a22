"""Attention in an exported ONNX model: the operator Attention where it means the same, else plain operators.

Where it means the same, PyTorch's own function is recorded: its exporter makes Attention of it from opset 23 on, and
products and softmax before. Masks become tensors, of the sizes that the model is run with. Rows that may be empty are
set to 0, as cephalo has them: opset 23 once left them open, and products give the mean of all values.
"""

import re
import typing

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .. import unlimited

_PART = re.compile(r"(\w+)\(([^()]*)\)")
_ARGUMENT = re.compile(r"\[[^\]]*\]|[\w.+-]+")


class Part(typing.NamedTuple):
    """causal(3), or keep(t)"""
    name: str
    arguments: list  # numbers, words, lists and tensors


def _argument(text):
    if text.startswith("["):
        return [float(number) for number in text[1:-1].split(",")]
    if text == "unlimited":
        return unlimited
    return text if text[0].isalpha() else int(text)


def _parts(rule, tensors):
    """The parts of a rule's mask, those with tensors last."""
    positions = rule.mask.partition(" | ")[0]
    parts = [Part(name, [_argument(text) for text in _ARGUMENT.findall(inside)])
             for name, inside in _PART.findall(positions)]
    for role, tensor in zip(rule.roles(), tensors):
        if role == "+":
            parts[-1].arguments.append(tensor)
        else:
            parts.append(Part(role.partition(" ")[0], [tensor]))
    return parts


def _by_sequence(numbers):
    """One for all or one for each -> [batch|1, 1, 1, 1]"""
    return torch.as_tensor(numbers).reshape(-1, 1, 1, 1)


class _Grid:
    """Every pair of a query i and a key j. p: the positions of queries, [q_tokens, 1]"""

    def __init__(self, q, k, parts):
        self.q_tokens, self.kv_tokens = q.shape[2], k.shape[2]
        self.i = torch.arange(self.q_tokens, device=q.device)[:, None]
        self.j = torch.arange(self.kv_tokens, device=q.device)
        given = [part.arguments for part in parts if part.name == "positions"]
        self.align, self.offset = (*given[0], 0)[:2] if given else ("bottom_right", 0)

    @property
    def p(self):
        first = self.kv_tokens - self.q_tokens if self.align == "bottom_right" else 0
        return self.i + (first + self.offset)

    def causal(self, prefix=0):
        past = self.j <= self.p
        return past if isinstance(prefix, int) and prefix == 0 else past | (self.j < _by_sequence(prefix))

    def window(self, left, right):
        near = self.j >= (0 * self.p if left == unlimited else self.p - left)
        return near if right == unlimited else near & (self.j <= self.p + right)

    def lengths(self, kv, q=None):
        real = self.j < _by_sequence(kv)
        return real if q is None else real & (self.i < _by_sequence(q))

    def keep(self, t):
        return t != 0

    def drop(self, t):
        return t == 0

    def documents(self, q_ids, kv_ids=None):
        kv_ids = q_ids if kv_ids is None else kv_ids
        of_query, of_key = q_ids[:, None, :, None], kv_ids[:, None, None, :]
        return (of_query == of_key) & (of_key >= 0)

    def bias(self, t):
        return t

    def alibi(self, slopes):
        slopes = torch.as_tensor(slopes, dtype=torch.float32).reshape(1, -1, 1, 1)
        return -slopes * (self.p - self.j).abs()

    def full(self, mask):
        """A mask of rank 2 to 4 with every query and key: runtimes do not broadcast these two."""
        mask = mask[(None,) * (4 - mask.dim())]
        return mask.expand(mask.shape[0], mask.shape[1], self.q_tokens, self.kv_tokens)

    def leaves_no_row_empty(self, parts):
        """Causality alone, of queries that all see the first key."""
        if [part for part in parts if part.name != "positions"] != [Part("causal", [])]:
            return False
        return self.offset >= 0 and (self.align == "top_left" or
                                     statically_known_true(self.q_tokens <= self.kv_tokens))

    def is_all_causal(self, parts):
        """Causality alone, aligned as the operator has it: query 0 sees key 0."""
        return self.leaves_no_row_empty(parts) and self.offset == 0 and (
            self.align == "top_left" or statically_known_true(self.q_tokens == self.kv_tokens))


class _Mask(typing.NamedTuple):
    """visible: bool, added: numbers; each broadcasts to [batch, num_heads, q_tokens, kv_tokens], or is None"""
    visible: torch.Tensor | None
    added: torch.Tensor | None

    def applied(self, scores):
        if self.added is not None:
            scores = scores + self.added
        return scores if self.visible is None else scores.masked_fill(~self.visible, -torch.inf)

    def combined(self):
        """One tensor: bool where nothing is added."""
        return self.visible if self.added is None else self.applied(torch.zeros_like(self.added))

    def of_rows(self, grid):
        """Which queries see a key: [batch|1, num_heads|1, q_tokens, 1]"""
        mask = self.combined()
        seen = mask if mask.dtype == torch.bool else mask > -torch.inf
        return grid.full(seen).any(-1, keepdim=True)


_NO_MASK = _Mask(None, None)


def _mask_of(grid, parts):
    visible, added = None, None
    for name, arguments in parts:
        if name == "positions":
            continue
        part = getattr(grid, name)(*arguments)
        if name in ("bias", "alibi"):
            added = part if added is None else added + part
        else:
            visible = part if visible is None else visible & part
    return _NO_MASK if visible is None and added is None else _Mask(visible, added)


def _check(rule):
    if rule.dropout:
        raise ValueError(f"torch.onnx.export: attention has dropout ({rule.dropout}), which a model that is run does "
                         "not have; call eval() first")


def _scaled(q, scale):
    """What the operator is given: runtimes take no scale of 0 or below."""
    return (q, scale) if scale is None or scale > 0.0 else (q * scale, 1.0)


def _operator(q, k, v, rule, mask=None, is_causal=False):
    q, scale = _scaled(q, rule.scale)
    # Not by its name in torch.nn.functional, where somebody may have put cephalo's.
    return torch.ops.aten.scaled_dot_product_attention(q, k, v, mask, 0.0, is_causal, scale=scale,
                                                       enable_gqa=q.shape[1] != k.shape[1])


def _means_the_same(q, rule, mask):
    """Opset 23 adds the mask before softcap, cephalo after it. The older exporter, which traces, and biases in
    another type than q get plain operators too."""
    is_other = mask.added is not None and mask.added.dtype != q.dtype
    return not (rule.softcap or is_other or torch.jit.is_tracing())


def _shared(heads, num_heads):
    """[batch, num_kv_heads, tokens, dim] -> [batch, num_heads, tokens, dim]"""
    times = num_heads // heads.shape[1]
    return heads if times == 1 else heads.repeat_interleave(times, 1)


def _weights_and_lse(q, k, rule, grid, mask):
    """-> [batch, num_heads, q_tokens, kv_tokens], [batch, num_heads, q_tokens], float32 at least"""
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    scale = q.shape[3]**-0.5 if rule.scale is None else rule.scale
    scores = (q.to(dtype) * scale) @ _shared(k.to(dtype), q.shape[1]).transpose(-2, -1)
    if rule.softcap:
        scores = rule.softcap * torch.tanh(scores / rule.softcap)
    scores = mask.applied(scores)
    weights, lse = scores.softmax(-1), scores.logsumexp(-1)
    if mask is _NO_MASK:
        return weights, lse
    seen = mask.of_rows(grid)
    return weights.masked_fill(~seen, 0.0), lse.masked_fill(~seen[..., 0], -torch.inf)


def _plain(q, k, v, rule, grid, mask):
    """-> context, lse, in operators that every opset has"""
    weights, lse = _weights_and_lse(q, k, rule, grid, mask)
    return (weights @ _shared(v.to(weights.dtype), q.shape[1])).to(q.dtype), lse


def context(q, k, v, rule, tensors):
    """As _doors.context, in operators of ONNX."""
    _check(rule)
    parts = _parts(rule, tensors)
    grid = _Grid(q, k, parts)
    if grid.is_all_causal(parts) and _means_the_same(q, rule, _NO_MASK):
        return _operator(q, k, v, rule, is_causal=True)
    mask = _mask_of(grid, parts)
    if not _means_the_same(q, rule, mask):
        return _plain(q, k, v, rule, grid, mask)[0]
    if mask is _NO_MASK:
        return _operator(q, k, v, rule)
    context = _operator(q, k, v, rule, grid.full(mask.combined()))
    return context if grid.leaves_no_row_empty(parts) else context.masked_fill(~mask.of_rows(grid), 0.0)


def context_and_lse(q, k, v, rule, tensors):
    """As _doors.context_and_lse; the operator has no lse."""
    _check(rule)
    parts = _parts(rule, tensors)
    grid = _Grid(q, k, parts)
    return _plain(q, k, v, rule, grid, _mask_of(grid, parts))


def looked_at(name, q, k, rule, tensors, *asked):
    """weights of chosen heads and rows, as _weights has them; maps and sums of rows are refused."""
    if name != "weights":
        raise ValueError(f"torch.onnx.export: {name} has no operators in ONNX; leave it out of the model")
    parts = _parts(rule, tensors)
    grid = _Grid(q, k, parts)
    weights = _weights_and_lse(q, k, rule, grid, _mask_of(grid, parts))[0]
    heads, rows = asked
    weights = weights[:, heads] if heads else weights
    return weights[:, :, rows] if rows else weights
