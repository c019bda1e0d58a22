"""Facts of PyTorch modules under the names that people give them; what is missing is refused by name."""

_HEADS = ("num_heads", "n_head", "n_heads", "num_attention_heads")
_DROPOUTS = ("attn_dropout", "attention_dropout", "attn_drop", "dropout")
_AFTER_PROJECTION = ("resid_dropout", "resid_drop", "proj_drop")
# Causal masks, which a layer has by definition.
MASK_BUFFERS = ("mask", "bias", "masked_bias")


def refuse(module, why):
    raise ValueError(f"from_torch: {type(module).__name__} {why}")


def need(module, name, why):
    found = getattr(module, name, None)
    if found is None and not hasattr(module, name):
        refuse(module, f"has no {name}, {why}")
    return found


def projection(module, name, why):
    """A Linear, or what has its weight and bias."""
    found = need(module, name, why)
    weight = getattr(found, "weight", None)
    if weight is None or weight.dim() != 2 or not hasattr(found, "bias"):
        refuse(module, f"has {name} of type {type(found).__name__}; a Linear was looked for")
    return found


def first(module, *names):
    """The first of these that the module says, or its config; None where neither says any."""
    for source in (module, getattr(module, "config", None)):
        for name in names:
            found = getattr(source, name, None)
            if found is not None:
                return found
    return None


def num_heads(module):
    found = first(module, *_HEADS)
    if found is None:
        refuse(module, f"has none of {', '.join(_HEADS)}: into how many heads is its width split?")
    return found


def dropout_rate(module):
    """Of the weights; dropout as nn.Dropout or as a number. nn.Identity stands for none."""
    dropout = first(module, *_DROPOUTS)
    if dropout is None or type(dropout).__name__ == "Identity":
        return 0.0
    rate = getattr(dropout, "p", dropout)
    if not isinstance(rate, (int, float)):
        refuse(module, f"has dropout of type {type(dropout).__name__}; a number or nn.Dropout was looked for")
    return float(rate)


def check_residual_dropout(module):
    for name in _AFTER_PROJECTION:
        rate = getattr(getattr(module, name, None), "p", 0.0)
        if module.training and rate > 0:
            refuse(module, f"is in training and has {name} ({rate}) after the projection, which the layer does "
                           "not have: call eval() or set it to 0")


def widths(linear):
    d_out, d_in = linear.weight.shape
    return d_in, d_out


def has_bias(module, *projections):
    """Whether the projections have a bias: all or none."""
    found = {p.bias is not None for p in projections}
    if len(found) != 1:
        refuse(module, "has a bias in some of its projections of q, k and v; all or none is needed")
    return found.pop()


def _is_triangle(mask):
    """Nonzero above the diagonal and nowhere else: what hides the future; or the reverse: what shows the
    rest."""
    import torch

    above = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).triu(1)
    nonzero = mask.reshape(-1, *mask.shape[-2:])[0] != 0
    return torch.equal(nonzero, above) or torch.equal(~nonzero, above)


def check_causal_buffer(module):
    """How long the module's mask buffer is, or None where it has none; one that is not causal is refused."""
    buffers = dict(module.named_buffers(recurse=False))
    for name in MASK_BUFFERS[:2]:
        mask = buffers.get(name)
        if mask is None:
            continue
        if mask.dim() < 2 or mask.shape[-1] != mask.shape[-2] or not _is_triangle(mask):
            refuse(module, f"has a buffer {name} of shape {tuple(mask.shape)} that is not a causal mask")
        return mask.shape[-1]
    return None


def context_length(module):
    """Of a causal module: told by its mask buffer, or by an attribute of that name."""
    length = check_causal_buffer(module)
    if length is None:
        length = first(module, "context_length", "block_size")
    if length is None:
        refuse(module, "has neither a mask buffer nor context_length: how long may x be?")
    return length


def is_causal(module):
    """Whether a module hides the future, if it says so in one way or another."""
    said = getattr(module, "is_causal", None)
    if said is not None:
        return bool(said)
    if check_causal_buffer(module) is None and first(module, "context_length", "block_size") is None:
        refuse(module, "does not say whether it hides the future: it has none of mask, bias, context_length, "
                       "block_size and is_causal")
    return True
