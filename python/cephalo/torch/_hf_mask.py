"""What transformers asks for in place of a mask: the rule, where there is one that says the same.

A rule is not a matrix: it needs no memory for each pair of tokens, and what it hides is not computed.
Modules that compute attention by themselves expect masks to add to scores; they are found out, not misled.
"""

import functools
import inspect
import re
import sys

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from transformers import masking_utils

from .. import unlimited
from ._masks import Mask, keep, lengths, positions, window
from .hf import NAME

_EVERYTHING, _CAUSAL = (unlimited, unlimited), (unlimited, 0)  # keys seen before one's own and after
_SUMS = (torch.ops.aten.add, torch.ops.aten.add_)
_AS_TYPE = torch.ops.aten._to_copy.default
# Functions of transformers that are made anew for each mask share their code.
_JOINED = masking_utils.and_masks().__code__
_SLIDING = masking_utils.sliding_window_overlay(1).__code__
_SLIDING_BOTH_WAYS = masking_utils.sliding_window_bidirectional_overlay(1).__code__


class RuleMask(Tensor):
    """A bool mask [batch, 1, q_tokens, kv_tokens] that is said, not stored. cephalo's attention reads the
    rule; whoever else does something with it, such as cutting off a piece, gets a tensor of bools. Whoever takes it
    for numbers to add gets an error: 0 and 1 would hide nothing."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, shape, rule=None, make=None, stored=None):
        """rule: a Mask, and make, which stores the same as bools; or those that are stored"""
        mask = Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device="cpu")
        mask._rule, mask._make, mask._stored = rule, make, stored
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
        to_numbers = function is _AS_TYPE and (named or {}).get("dtype", torch.bool).is_floating_point
        if to_numbers or function.overloadpacket in _SUMS:
            # A TypeError would mean that + does not know how.
            raise ValueError(f'attn_implementation="{NAME}": a module of this model adds masks to scores by itself '
                             "instead of asking transformers' attention interface; use "
                             'attn_implementation="eager"')
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


@functools.cache
def _found_in_source(configuration):
    """Whether all attention of a family is its own, by the name of the file that has its config. None of its masks
    would reach cephalo: some are added to scores, some turned round, and no mask is taken for none."""
    module = sys.modules.get(configuration.replace(".configuration_", ".modeling_"))
    try:
        source = inspect.getsource(module)
    except (OSError, TypeError):
        return False
    has_attention = re.search(r"^class \w*Attention\w*\(nn\.Module\)", source, re.MULTILINE) is not None
    return has_attention and "ALL_ATTENTION_FUNCTIONS" not in source


@torch.compiler.assume_constant_result
def _computes_by_itself(configuration):
    """Apart from the one above: torch.compile looks into a cached function."""
    return _found_in_source(configuration)


def _check_family(config):
    if config is not None and _computes_by_itself(type(config).__module__):
        raise ValueError(f'attn_implementation="{NAME}": {config.model_type} computes attention by itself and does not '
                         "ask transformers' attention interface; use attn_implementation=\"eager\"")


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0,
         mask_function=masking_utils.causal_mask_function, attention_mask=None, allow_is_causal_skip=True,
         allow_is_bidirectional_skip=False, device="cpu", config=None, **others):
    """For AttentionMaskInterface: of transformers' mask function and the padding that the tokenizer reported
    (attention_mask: bool [batch, tokens]), -> bool [batch, 1, q_tokens, kv_tokens], or None, which stands for
    "causal" or "everything" as a module's is_causal has it."""
    _check_family(config)
    given = dict(batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
                 kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask, device=device,
                 config=config, **others)

    def stored(causal_skip=False, bidirectional_skip=False):
        return masking_utils.sdpa_mask(**given, allow_is_causal_skip=causal_skip,
                                       allow_is_bidirectional_skip=bidirectional_skip)

    if not _is_computed_now(q_offset, attention_mask, device):
        return stored(allow_is_causal_skip, allow_is_bidirectional_skip)
    # Whoever does not take None for an answer wants to compute with the mask.
    may_be_a_rule = allow_is_causal_skip or allow_is_bidirectional_skip
    reach = _reach(mask_function) if may_be_a_rule else None
    if reach is None:
        bools = stored()
        return RuleMask(bools.shape, stored=bools)
    offset = q_offset - kv_offset
    reach = _that_matters(reach, q_length, kv_length, offset)
    real = _padding(attention_mask, kv_length, kv_offset)
    if real is None and reach == _EVERYTHING and (q_length == 1 or allow_is_bidirectional_skip):
        return None  # what is causal is said: a module that does not ask would take None for everything
    return RuleMask((batch_size, 1, q_length, kv_length), _rule(reach, offset, real), stored)
