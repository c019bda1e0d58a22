"""Layers from PyTorch modules and back: whatever would be lost is refused by name."""

from ._cephalo import MultiHeadAttention
from ._torch_forms import form_of, own_name
from ._torch_reading import MASK_BUFFERS, refuse

_DTYPES = ("bfloat16", "float16", "float32", "float64")
# Follow from what a layer is: its mask, and the angles of its rotary positions.
_COMPUTED = (*MASK_BUFFERS, "inv_freq", "original_inv_freq")


def _dtype(module):
    """One element type for all parameters, which are in memory that can be read."""
    parameters = list(module.parameters())
    elsewhere = sorted({str(p.device) for p in parameters} - {"cpu"})
    if elsewhere:
        refuse(module, f"has parameters on {', '.join(elsewhere)}; move it to the CPU first")
    found = sorted({str(p.dtype).removeprefix("torch.") for p in parameters})
    if len(found) != 1:
        refuse(module, f"has parameters of {', '.join(found) or 'no dtype'}; one dtype is needed")
    if found[0] not in _DTYPES:
        refuse(module, f"has parameters of {found[0]}; supported are {', '.join(_DTYPES)}")
    return found[0]


def _check_tensors(module, form):
    """Every tensor has its place, and every place its tensor."""
    theirs = {name for name, _ in module.named_parameters()}
    theirs |= {n for n, _ in module.named_buffers() if n.split(".")[-1] not in _COMPUTED}
    placed = {name for place in form.places.values() for name in place.names}
    if extra := sorted(theirs - placed):
        refuse(module, f"has {', '.join(extra)}, which the layer cannot hold")
    if missing := sorted(placed - theirs):
        refuse(module, f"has no {', '.join(missing)}, which the layer needs")


def _copy(module, form):
    parameters = dict(module.named_parameters())
    for name, place in form.places.items():
        tensor = place.made(*(parameters[n].detach() for n in place.names)).contiguous()
        shape = tuple(form.layer.parameters[name].shape)
        if tuple(tensor.shape) != shape:
            refuse(module, f"has {' and '.join(place.names)} of shape {tuple(tensor.shape)}, and the layer "
                           f"of its other sizes a {name} of {shape}")
        form.layer.update(name, tensor)


def from_torch(module):
    """A layer with the parameters of a PyTorch module, copied, in its mode.

    module: a class of the book (its bonus classes and cephalo.torch's too), nn.MultiheadAttention, which becomes a
    layer without a causal mask and with the batch first, Hugging Face's GPT2Attention, nanoGPT's and minGPT's
    CausalSelfAttention, or a module with q_proj, k_proj, v_proj and o_proj that says the base of its rotary
    positions (Llama's). It is recognised by its attributes; a triangular mask among its buffers hides the future.
    Two projections after the heads become one. Anything the module does that the layer could not is a
    ValueError that names it.
    """
    form = form_of(module, _dtype(module))
    _check_tensors(module, form)
    _copy(module, form)
    return form.layer.train() if module.training else form.layer.eval()


def _masks(layer):
    """The mask buffers of the book's classes."""
    import torch

    if not layer.causal or layer.context_length == 0 or layer.form not in ("separate", "heads"):
        raise ValueError(f"to_torch_state_dict: a layer of form {layer.form}, causal={layer.causal} "
                         f"and context_length={layer.context_length} has no mask buffer")
    mask = torch.triu(torch.ones(layer.context_length, layer.context_length), diagonal=1)
    if layer.form == "separate":
        return {"mask": mask}
    return {f"heads.{head}.mask": mask for head in range(layer.num_heads)}


def to_torch_state_dict(layer, buffers=False):
    """The parameters, copied into tensors, under the names of the layer's form.

    buffers: include the book's mask, as load_state_dict with strict=True requires. A layer with rotary
    positions, which none of those modules have, is a ValueError.
    """
    if layer.rotary is not None:
        raise ValueError(f"to_torch_state_dict: the layer has {layer.rotary}, and no PyTorch module "
                         f"of form {layer.form} has rotary positions")
    import torch

    state = _masks(layer) if buffers else {}
    dtype = getattr(torch, layer.dtype)
    for name, array in layer.parameters.items():
        memory = array.tobytes() if hasattr(array, "tobytes") else memoryview(array).tobytes()
        flat = torch.frombuffer(bytearray(memory), dtype=dtype)
        state[own_name(layer, name)] = flat.reshape(array.shape)
    return state


MultiHeadAttention.from_torch = staticmethod(from_torch)
MultiHeadAttention.to_torch_state_dict = to_torch_state_dict
