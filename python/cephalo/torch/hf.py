"""Hugging Face transformers with cephalo's attention."""

import inspect
import re
import typing

from torch import nn

NAME = "cephalo"
# What a model may pass that would change the result, and what it means.
REFUSED = {
    "s_aux": "attention sinks",
    "indices": "sparse attention, of keys by their indices",
    "block_indices": "sparse attention, of blocks by their indices",
    "cache": "a paged cache, of continuous batching",
    "cu_seq_lens_q": "packed sequences by their lengths; position_ids without attention_mask say the same",
    "cu_seq_lens_k": "packed sequences by their lengths; position_ids without attention_mask say the same",
}


class Support(typing.NamedTuple):
    """True or False, and why."""
    supported: bool
    reason: str

    def __bool__(self):
        return self.supported

    def __str__(self):
        return f"{'yes' if self.supported else 'no'}: {self.reason}"


_BASES = ("torch.", "transformers.modeling_utils")  # which do not compute attention; the latter speaks of it


def _source(module_class):
    """Of a class and of those it is made from."""
    try:
        return "\n".join(inspect.getsource(c) for c in module_class.__mro__
                         if issubclass(c, nn.Module) and not c.__module__.startswith(_BASES))
    except (OSError, TypeError):  # of a class from a prompt
        return ""


def _asking(model):
    """The classes of its modules that ask the interface, and what they are made from."""
    sources = {c: _source(c) for c in {type(module) for module in model.modules()}}
    return {c: source for c, source in sources.items() if "ALL_ATTENTION_FUNCTIONS.get" in source}


def _on_their_own(model, asking):
    """Classes of modules that are called attention, do not ask, and hold no other that might."""
    def is_one(module):
        return "Attention" in type(module).__name__ or type(module) in asking

    return {type(module) for module in model.modules()
            if is_one(module) and not any(is_one(m) for m in module.modules() if m is not module)} - asking.keys()


def _names(classes):
    return ", ".join(sorted(c.__name__ for c in classes))


class Registration:
    """What register_hf returns."""

    name = NAME

    def supports(self, model: nn.Module) -> Support:
        """Whether attn_implementation="cephalo" does anything for this model, and why not."""
        family = getattr(getattr(model, "config", None), "model_type", None) or type(model).__name__
        asking = _asking(model)
        others = _on_their_own(model, asking)
        if not asking:
            return Support(False, f"{family} does not ask transformers' attention interface: " +
                           (f"{_names(others)} computes attention by itself" if others else "it has no attention"))
        for name in ("s_aux", "indices", "block_indices"):
            passing = {c for c, source in asking.items() if re.search(rf"\b{name}=", source)}
            if passing:
                return Support(False, f"{family} passes {name} ({REFUSED[name]}; {_names(passing)}), which cephalo "
                                      "does not know")
        also = f"; without it: {_names(others)}" if others else ""
        return Support(True, f"{family} asks transformers' attention interface ({_names(asking)}){also}")


def register_hf() -> Registration:
    """Makes attn_implementation="cephalo" known to Hugging Face transformers, with its masks:

        cephalo.torch.register_hf()
        model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="cephalo")

    or model.set_attn_implementation("cephalo") for one that is there. .supports(model) of what is returned says
    whether a model asks for it. What a model passes that cephalo does not know is an error that names it.
    """
    try:
        from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
        from transformers.modeling_utils import AttentionInterface
    except ImportError as error:
        raise ImportError("register_hf: transformers with an attention interface is not installed: "
                          "pip install --upgrade transformers") from error
    if "q_offset" not in inspect.signature(sdpa_mask).parameters:
        import transformers
        raise ImportError(f"register_hf: transformers {transformers.__version__} is too old: "
                          "pip install --upgrade transformers")
    from ._hf_attention import attention
    from ._hf_mask import mask
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)
    return Registration()
