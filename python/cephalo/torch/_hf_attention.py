"""Attention as transformers' models ask for it."""

import torch
from torch import Tensor
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from . import _doors, _engine
from ._hf_mask import RuleMask
from ._masks import Mask, bias, keep
from ._weights import weights
from .hf import NAME, REFUSED
from .sdpa import _CAUSAL, _autocasts, _lowered

try:
    from transformers.utils.output_capturing import _active_collector
except ImportError:
    _active_collector = None

# What travels along with a model's arguments and says nothing about attention that its mask does not
# say: windows, positions and packed sequences are in the mask; results do not vary from run to run.
_NOTHING_NEW = frozenset((
    "sliding_window", "position_ids", "cache_position", "seq_idx", "max_length_q", "max_length_k", "deterministic",
    "num_items_in_batch", "output_hidden_states", "output_router_logits", "return_dict", "use_cache"))


def _refuse(others):
    for name, value in others.items():
        if value is None or name in _NOTHING_NEW:
            continue
        meaning = f" ({REFUSED[name]})" if name in REFUSED else ""
        raise ValueError(f'attn_implementation="{NAME}": the model passes {name}{meaning}, which cephalo does '
                         'not know; use attn_implementation="eager"')


def _without_mask(module, is_causal, q_tokens):
    """None stands for "causal" or "everything"; one query sees everything that there is. Padding is in a mask."""
    if NAME not in ALL_MASK_ATTENTION_FUNCTIONS._global_mapping:
        raise RuntimeError(f'attn_implementation="{NAME}": transformers has no mask function of this name, so '
                           "that padding would be ignored; call cephalo.torch.register_hf()")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    return Mask(_CAUSAL if is_causal and q_tokens > 1 else "")


def _mask_of(attention_mask):
    if isinstance(attention_mask, RuleMask):
        return attention_mask.rule()
    if not isinstance(attention_mask, Tensor) or attention_mask.dim() != 4:
        found = list(attention_mask.shape) if isinstance(attention_mask, Tensor) else type(attention_mask).__name__
        raise ValueError(f'attn_implementation="{NAME}": attention_mask is {found}; a tensor of [batch, num_heads '
                         "or 1, q_tokens, kv_tokens] is needed")
    return keep(attention_mask) if attention_mask.dtype == torch.bool else bias(attention_mask)


def _are_collected():
    """Whether somebody takes the weights that modules return: GPT-2 keeps output_attentions to itself."""
    collected = None if _active_collector is None else _active_collector.get()
    return collected is not None and any(name.endswith("attentions") for name in collected)


def attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None,
              softcap=None, position_bias=None, output_attentions=False, **others):
    """For AttentionInterface.

    query: [batch, num_heads, q_tokens, head_dim]
    key, value: [batch, num_kv_heads, kv_tokens, head_dim]; heads of query share them
    attention_mask: [batch|1, num_heads|1, q_tokens, kv_tokens], bool (True may look) or added, or None
    position_bias: [batch|1, num_heads|1, q_tokens, kv_tokens], added, differentiated
    -> context [batch, q_tokens, num_heads, head_dim]; weights [batch, num_heads, q_tokens, kv_tokens] or None, before
    dropout and without a gradient
    """
    _refuse(others)
    if _autocasts():
        query, key, value, attention_mask, position_bias = map(
            _lowered, (query, key, value, attention_mask, position_bias))
    if attention_mask is None:
        mask = _without_mask(module, is_causal, query.shape[2])
    else:
        mask = _mask_of(attention_mask)
    if position_bias is not None:
        mask = mask & bias(position_bias)
    rule = _engine.Rule(mask.rule_text(), scaling, softcap, dropout)
    if not (output_attentions or _are_collected()):
        context, found = _doors.context(query, key, value, rule, mask.tensors), None
    else:
        context, lse = _doors.context_and_lse(query, key, value, rule, mask.tensors)
        found = weights(query, key, lse, mask, scaling, softcap).to(query.dtype)
    return context.transpose(1, 2).contiguous(), found
