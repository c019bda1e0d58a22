"""What attention under PyTorch's name refuses, in classes that PyTorch's own function raises.

cephalo documents ValueError and TypeError; PyTorch raises RuntimeError, NotImplementedError and IndexError. Each
class here is one of both, so that code written for either catches it.
"""

import torch
from torch import Tensor

SDPA = "scaled_dot_product_attention"
_SUPPORTED = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# How messages of the engine begin.
_ENGINE = ("attend: ", "keep: ", "bias: ", "drop: ")


class ArgumentError(ValueError, RuntimeError):
    """Shapes or numbers that do not fit together."""


class RankError(ValueError, IndexError):
    """A mask without rows, of which PyTorch says that an index is out of range."""


class KindError(TypeError, RuntimeError):
    """Element types or devices that do not fit together."""


class UnsupportedError(TypeError, NotImplementedError):
    """A kind of tensor that is not computed with."""


_OURS = (ArgumentError, RankError, KindError, UnsupportedError)


def _article(noun):
    vowel = noun[0] in "aeiouAEIOU" or noun.startswith("nd")  # "an ndarray"
    return f"{'an' if vowel else 'a'} {noun}"


def _check_tensor(name, tensor, on_meta, rank_error):
    """on_meta: where nothing but shapes is computed."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{SDPA}: {name} is {_article(type(tensor).__name__)}; a torch.Tensor is needed")
    if not (tensor.is_meta if on_meta else tensor.is_cpu or tensor.is_cuda):
        raise KindError(f"{SDPA}: {name} is on device {tensor.device}; cephalo computes on the CPU: move it "
                        "there first")
    if tensor.dim() < 2:
        raise rank_error(f"{SDPA}: {name} has shape {tuple(tensor.shape)}; at least 2 dimensions are needed")


def check(query, key, value):
    """The rules of PyTorch that the engine does not have."""
    on_meta = all(isinstance(tensor, Tensor) and tensor.is_meta for tensor in (query, key, value))
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        _check_tensor(name, tensor, on_meta, ArgumentError)
    if not query.dtype == key.dtype == value.dtype:
        raise KindError(f"{SDPA}: query, key and value must be of one dtype; they are "
                        f"{query.dtype}, {key.dtype} and {value.dtype}")


def check_mask(attn_mask, query):
    _check_tensor("attn_mask", attn_mask, query.is_meta, RankError)
    if attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
        raise KindError(f"{SDPA}: attn_mask is of dtype {attn_mask.dtype}; supported are torch.bool, "
                        f"torch.float32 and query's {query.dtype}")


def refuse_causal_bias(causal_bias, **tensors):
    """Its memory was never written to: as anything but a rule it would be read as noise."""
    for name, tensor in tensors.items():
        if causal_bias is not None and isinstance(tensor, causal_bias):
            raise TypeError(f"{SDPA}: {name} is {_article(type(tensor).__name__)}; only attn_mask may be a "
                            "CausalBias")


def _reason(tensor, is_mask):
    """Why a tensor cannot be computed with, and what to do about it; None where it can."""
    if tensor.is_nested:
        return "is a nested tensor; " + ("torch.nested.to_padded_tensor makes it dense" if is_mask else
                                         "cephalo.torch.attend takes those of layout torch.jagged")
    if tensor.layout is not torch.strided:
        return f"is of layout {tensor.layout}; a dense tensor is needed: call to_dense()"
    if tensor.is_quantized:
        return f"is quantized ({tensor.dtype}); call dequantize()"
    if not is_mask and tensor.dtype not in _SUPPORTED:
        return (f"is of dtype {tensor.dtype}; supported are torch.float32, torch.float64, torch.float16 and "
                "torch.bfloat16")
    return None


def _check_settings(dropout_p, is_causal, scale):
    """What the engine would call by other names."""
    if not isinstance(is_causal, (bool, int)):
        raise TypeError(f"{SDPA}: is_causal is {_article(type(is_causal).__name__)}; a bool is needed")
    for name, number in (("dropout_p", dropout_p), ("scale", scale)):
        if not hasattr(number, "__float__") and not (name == "scale" and number is None):
            raise TypeError(f"{SDPA}: {name} is {_article(type(number).__name__)}; a number is needed")
    if not 0.0 <= dropout_p <= 1.0:
        raise ArgumentError(f"{SDPA}: dropout_p ({dropout_p}) must be in [0, 1]")


def explain(error, tensors, dropout_p, is_causal, scale):
    """Raises what fits the case, in place of an error that some depth of the call has found.
    tensors: by the names of the arguments."""
    given = {name: tensor for name, tensor in tensors.items() if isinstance(tensor, Tensor)}
    nested = [name for name, tensor in given.items() if tensor.is_nested]
    plain = [name for name in given if name not in nested and name != "attn_mask"]
    if nested and plain and "attn_mask" not in nested:
        raise ArgumentError(f"{SDPA}: {nested[0]} is a nested tensor and {plain[0]} is not") from error
    for name, tensor in given.items():
        if reason := _reason(tensor, name == "attn_mask"):
            raise UnsupportedError(f"{SDPA}: {name} {reason}") from error
    if isinstance(error, _OURS):
        raise error
    _check_settings(dropout_p, is_causal, scale)
    text = str(error)
    if not text.startswith(_ENGINE):
        raise error
    made = ArgumentError if isinstance(error, ValueError) else KindError
    raise made(f"{SDPA}: {text.removeprefix('attend: ')}") from None
