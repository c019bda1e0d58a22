"""What transformers asks for in place of a mask: the rule, where there is one that says the same.

A rule is not a matrix: it needs no memory for each pair of tokens, and what it hides is not computed.
"""

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from transformers import masking_utils

from .. import unlimited
from ._masks import Mask, keep, lengths, positions, window

_EVERYTHING, _CAUSAL = (unlimited, unlimited), (unlimited, 0)  # keys seen before one's own and after
# Functions of transformers that are made anew for each mask share their code.
_JOINED = masking_utils.and_masks().__code__
_SLIDING = masking_utils.sliding_window_overlay(1).__code__
_SLIDING_BOTH_WAYS = masking_utils.sliding_window_bidirectional_overlay(1).__code__


class RuleMask(Tensor):
    """A bool mask [batch, 1, q_tokens, kv_tokens] that is said, not stored. cephalo's attention reads the
    rule; whoever else does something with it, such as cutting off a piece, gets a tensor of bools."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, shape, rule, make):
        """rule: a Mask; make: stores the same as bools"""
        mask = Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device="cpu")
        mask._rule, mask._make, mask._stored = rule, make, None
        return mask

    def rule(self) -> Mask:
        """Bools that somebody has asked for may have been written to: from then on they are what counts."""
        return self._rule if self._stored is None else keep(self._stored)

    def stored(self) -> Tensor:
        if self._stored is None:
            self._stored = self._make().expand(self.shape).contiguous()
        return self._stored

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        arguments, named = tree_map_only(RuleMask, RuleMask.stored, (arguments, named or {}))
        return function(*arguments, **named)

    def __deepcopy__(self, memo):
        return self.stored().clone()

    def __repr__(self):
        return f"RuleMask({list(self.shape)}, {self.rule()})"


def _held(function, name):
    """The value of a variable that a function has from where it was made."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or ())
    return {free: cell.cell_contents for free, cell in cells}[name]


def _bounds(before, after):
    """A window of no tokens, in a config that does not use it, is not one."""
    return (before, after) if min(before, after) >= 0 else None


def _reach(function):
    """How many keys a query sees before and after its own position, or None where that does not say it.
    A function that is not known, or no longer looks as it did, has no rule: its mask is stored."""
    if function is masking_utils.bidirectional_mask_function:
        return _EVERYTHING
    if function is masking_utils.causal_mask_function:
        return _CAUSAL
    code = getattr(function, "__code__", None)
    try:
        if code is _SLIDING:
            return _bounds(_held(function, "sliding_window") - 1, unlimited)
        if code is _SLIDING_BOTH_WAYS:
            return _bounds(*[_held(function, "sliding_window")] * 2)
        if code is _JOINED:
            reaches = [_reach(part) for part in _held(function, "mask_functions")]
            return None if None in reaches else _intersection(reaches)
    except (KeyError, TypeError):
        pass
    return None


def _intersection(reaches):
    before, after = zip(*reaches)
    return min(before), min(after)


def _that_matters(reach, q_length, kv_length, offset):
    """The same without a bound that hides nothing: decoding within a window has none."""
    before, after = reach
    first, last = offset, offset + q_length - 1
    return (unlimited if last - before <= 0 else before, unlimited if first + after >= kv_length - 1 else after)


def _is_computed_now(q_offset, attention_mask, device):
    """Plain numbers and a plain tensor on the CPU: a graph that records what happens, and a static cache, whose
    mask may be made for one, hold tensors."""
    if masking_utils.is_tracing(attention_mask) or isinstance(q_offset, Tensor):
        return False
    return (torch.device(device).type == "cpu" and torch._C._len_torch_dispatch_stack() == 0 and
            not torch._C._are_functorch_transforms_active())


def _padding(attention_mask, kv_length, kv_offset):
    """attention_mask: bool [batch, tokens], short where a cache has room -> [batch, kv_tokens], or None
    where everything is real"""
    if attention_mask is None:
        return None
    padded = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    real = padded[:, kv_offset:kv_offset + kv_length]
    return None if bool(real.all()) else real


def _lengths(real):
    """real: [batch, kv_tokens] -> how many come first in each row, [batch], or None where others follow"""
    counts = real.sum(-1)
    first = torch.arange(real.shape[-1]) < counts[:, None]
    return counts if torch.equal(first, real) else None


def _rule(reach, offset, real):
    """reach: of _reach; real: of _padding -> Mask"""
    mask = Mask()
    if reach != _EVERYTHING:
        mask &= positions("top_left", offset) & window(*reach)
    if real is None:
        return mask
    counts = _lengths(real)
    return mask & (keep(real[:, None, None, :]) if counts is None else lengths(counts))


def _is_meant_by_none(reach, q_length, kv_length, offset, is_bidirectional):
    """What the attention function takes None for: "causal" where a module is, but all that there is for one query."""
    if reach == _EVERYTHING:
        return q_length == 1 or is_bidirectional
    return reach == _CAUSAL and q_length == kv_length and offset == 0


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0,
         mask_function=masking_utils.causal_mask_function, attention_mask=None, allow_is_causal_skip=True,
         allow_is_bidirectional_skip=False, device="cpu", **others):
    """For AttentionMaskInterface: of transformers' mask function and the padding that the tokenizer reported
    (attention_mask: bool [batch, tokens]), -> bool [batch, 1, q_tokens, kv_tokens], or None, which stands for
    "causal" or "everything" as a module's is_causal has it."""
    given = dict(batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
                 kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask, device=device,
                 **others)

    def stored(causal_skip=False, bidirectional_skip=False):
        return masking_utils.sdpa_mask(**given, allow_is_causal_skip=causal_skip,
                                       allow_is_bidirectional_skip=bidirectional_skip)

    # Whoever does not take None for an answer wants to compute with the mask.
    may_be_a_rule = ((allow_is_causal_skip or allow_is_bidirectional_skip) and
                     _is_computed_now(q_offset, attention_mask, device))
    reach = _reach(mask_function) if may_be_a_rule else None
    if reach is None:
        return stored(allow_is_causal_skip, allow_is_bidirectional_skip)
    offset = q_offset - kv_offset
    reach = _that_matters(reach, q_length, kv_length, offset)
    real = _padding(attention_mask, kv_length, kv_offset)
    if real is None and _is_meant_by_none(reach, q_length, kv_length, offset, allow_is_bidirectional_skip):
        return None
    return RuleMask((batch_size, 1, q_length, kv_length), _rule(reach, offset, real), stored)
