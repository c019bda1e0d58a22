"""Rotary positions of Llama-style modules: as the layer has them, or refused by name."""

from ._cephalo import Rotary
from ._torch_reading import first, refuse

_LOOKED_FOR = "rope_theta, rotary_emb.base and config.rope_parameters"


def _parameters(module):
    """Hugging Face's description, {} where there is none. Before version 5 it was called rope_scaling."""
    return first(module, "rope_parameters", "rope_scaling") or {}


def _base(module):
    said = first(module, "rope_theta")
    if said is None:
        said = getattr(getattr(module, "rotary_emb", None), "base", None)
    if said is None:
        said = _parameters(module).get("rope_theta")
    if said is None:
        refuse(module, "has o_proj, as modules with rotary positions do, and does not say their base: "
                       f"{_LOOKED_FOR} were looked for")
    return float(said)


def _check_plain(module, head_dim):
    """Nothing but rotary positions stands between projections and weights."""
    kind = _parameters(module).get("rope_type", _parameters(module).get("type", "default"))
    if kind != "default":
        refuse(module, f"has rotary positions of type {kind}; the layer has those of type default")
    part = _parameters(module).get("partial_rotary_factor", first(module, "partial_rotary_factor"))
    if part not in (None, 1, 1.0):
        refuse(module, f"turns a part of each head (partial_rotary_factor {part}); the layer turns all of it")
    scaling = getattr(module, "scaling", None)
    if scaling is not None and abs(scaling * head_dim**0.5 - 1.0) > 1e-6:
        refuse(module, f"scales by {scaling}; the layer scales by 1 / sqrt(head_dim)")
    own = hasattr(module, "sliding_window")  # a layer may have none in a model that has one
    window = module.sliding_window if own else first(module, "sliding_window")
    if window is not None:
        refuse(module, f"has a sliding_window ({window}), which the layer does not have")
    softcap = first(module, "attn_logit_softcapping", "softcap")
    if softcap is not None:
        refuse(module, f"has a softcap ({softcap}), which the layer does not have")


def _check_frequencies(module, base, head_dim):
    """What the module has computed from its base, where it keeps it."""
    frequencies = getattr(getattr(module, "rotary_emb", None), "inv_freq", None)
    if frequencies is None:
        return
    import torch

    expected = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    found = frequencies.detach().double().cpu()
    if found.shape != expected.shape or not torch.allclose(found, expected, rtol=1e-2 if
                                                           frequencies.element_size() < 4 else 1e-5):
        refuse(module, f"has a rotary_emb.inv_freq that does not follow from its base ({base})")


def of(module, head_dim):
    """A Rotary. Pairs are (k, k + head_dim / 2): the way of all modules with o_proj."""
    _check_plain(module, head_dim)
    base = _base(module)
    _check_frequencies(module, base, head_dim)
    return Rotary(interleaved=False, base=base)
