"""cephalo's masks, with PyTorch's tensors in them.

A cephalo.Mask reads memory, which a transform of PyTorch cannot follow. Here a mask is a text for what depends
on positions alone, and tensors for the rest: a compiled graph takes them as inputs, and a bias gets a gradient.
"""

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from .. import Mask as _PlainMask
from .. import unlimited
from . import _engine

_WITH_TENSORS = ("keep(", "drop(", "bias(", "documents(")
_PLAIN = (Tensor, nn.Parameter)
_NO_FUNCTION = torch._C._disabled_torch_function_impl  # of fake tensors and the like, which are what they seem
_INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class Mask:
    """Which keys a query may look at: parts joined by &, as in cephalo.Mask, which may join them too."""

    def __init__(self, text: str = "", roles: tuple = (), tensors: tuple = ()):
        self.text, self.roles, self.tensors = text, roles, tensors

    def __and__(self, other):
        if not isinstance(other, (Mask, _PlainMask)):
            return NotImplemented
        other = mask_from(other)
        both = [text for text in (self.text, other.text) if text]
        return Mask(" & ".join(both), self.roles + other.roles, self.tensors + other.tensors)

    def __rand__(self, other):
        return mask_from(other) & self if isinstance(other, _PlainMask) else NotImplemented

    def __repr__(self):
        parts = [self.text] if self.text else []
        for role, tensor in zip(self.roles, self.tensors):
            shape = str(list(tensor.shape))
            if role == "+":
                parts[-1] = f"{parts[-1][:-1]}, {shape})"
            else:
                parts.append(f"{role.partition(' ')[0]}({shape})")
        return " & ".join(parts) or "none"

    def rule_text(self):
        return f"{self.text} | {', '.join(self.roles)}" if self.roles else self.text

    def draw(self, q_tokens: int, kv_tokens: int, head: int = 0, batch: int = 0) -> str:
        """A picture, a row for each query: # visible, . hidden, + visible with a bias."""
        tensors = [t.detach() for t in self.tensors]
        mask = _engine.mask_of(_engine.Rule(self.rule_text()), tensors)
        return (_PlainMask.parse("none") if mask is None else mask).draw(q_tokens, kv_tokens, head, batch)


@torch.compiler.assume_constant_result
def _text_of(mask):
    return repr(mask)


@torch.compiler.assume_constant_result
def _read(text):
    """The text, if cephalo can read it: an error here names the part where it is written."""
    _engine.Rule(text).roles()
    return text


def mask_from(mask, function="attend"):
    """A Mask of PyTorch's tensors, of cephalo's arrays or None -> a Mask"""
    if mask is None:
        return Mask()
    if isinstance(mask, Mask):
        return mask
    if not isinstance(mask, _PlainMask):
        raise TypeError(f"{function}: mask is of type {type(mask).__name__}; a mask says what it means: causal(), "
                        "keep(t) where nonzero is visible, drop(t) where nonzero is hidden, bias(t) ...")
    text = _text_of(mask)
    for part in _WITH_TENSORS:
        if part in text:
            raise TypeError(f"{function}: the mask's {part[:-1]} holds an array that PyTorch cannot follow; write "
                            f"cephalo.torch.{part}t)")
    return Mask("" if text == "none" else text)


def _check_tensor(part, name, tensor, dtypes, ranks):
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{part}: {name} is of type {type(tensor).__name__}; a torch.Tensor is needed")
    if type(tensor) not in _PLAIN and type(tensor).__torch_function__ is not _NO_FUNCTION:
        raise TypeError(f"{part}: {name} is of type {type(tensor).__name__}, which may mean anything by its numbers; a "
                        "plain tensor is needed")
    if not (tensor.is_cpu or tensor.is_cuda):
        raise TypeError(f"{part}: {name} is on device {tensor.device}; cephalo computes on the CPU and on GPUs of "
                        "NVIDIA: move it there first")
    if dtypes is not None and tensor.dtype not in dtypes:
        names = ", ".join(str(dtype) for dtype in dtypes)
        raise TypeError(f"{part}: {name} is of dtype {tensor.dtype}; supported are {names}")
    if tensor.dim() not in ranks:
        raise ValueError(f"{part}: {name} has shape {tuple(tensor.shape)}; its rank must be "
                         f"{' or '.join(map(str, ranks))}")


def _of_scores(part, t, dtypes):
    """[q, k], [heads|1, q|1, k|1] or rank 4 -> rank 4"""
    _check_tensor(part, "t", t, dtypes, (2, 3, 4))
    return Mask("", (part,), (t[(None,) * (4 - t.dim())],))


def _whole_numbers(part, name, numbers):
    """A number for each sequence: a list, or a tensor [batch] or [] -> [batch]"""
    if not isinstance(numbers, Tensor):
        numbers = torch.tensor(list(numbers), dtype=torch.int64)
    _check_tensor(part, name, numbers, (torch.int32, torch.int64), (0, 1))
    return numbers if numbers.dim() == 1 else numbers.reshape(-1)


def _ids(name, ids):
    """[tokens] or [batch, tokens] -> [batch|1, tokens]"""
    if not isinstance(ids, Tensor):
        ids = torch.tensor(ids, dtype=torch.int64)
    _check_tensor("documents", name, ids, (torch.int32, torch.int64), (1, 2))
    return ids[None] if ids.dim() == 1 else ids


def positions(align: str = "bottom_right", offset: int = 0) -> Mask:
    """The position of query i: p(i) = i + offset, plus kv_tokens - q_tokens if align is "bottom_right".
    "top_left" is PyTorch's alignment."""
    return Mask(_read(f"positions({align}, {offset})"))


def causal(prefix=0) -> Mask:
    """Query i sees key j when j <= p(i), or j < prefix: a number, or one for each sequence as a list or an
    integer tensor [batch]."""
    if isinstance(prefix, int):
        return Mask(_read(f"causal({prefix})" if prefix else "causal()"))
    return Mask("", ("causal",), (_whole_numbers("causal", "prefix", prefix),))


def window(left: int, right: int) -> Mask:
    """p(i) - left <= j <= p(i) + right; cephalo.unlimited for no bound."""
    return Mask(_read(f"window({_bound(left)}, {_bound(right)})"))


def _bound(bound):
    return "unlimited" if bound == unlimited else str(bound)


def keep(t: Tensor) -> Mask:
    """Visible where t is nonzero. t: bool or integers, [q, k], [heads|1, q|1, k|1] or
    [batch|1, heads|1, q|1, k|1]."""
    return _of_scores("keep", t, _INTEGERS)


def drop(t: Tensor) -> Mask:
    """Hidden where t is nonzero; shapes as in keep."""
    return _of_scores("drop", t, _INTEGERS)


def bias(t: Tensor) -> Mask:
    """Adds t to the scores; -inf hides. float32 or q's type, shapes as in keep. It has a gradient."""
    return _of_scores("bias", t, None)


def lengths(kv, q=None) -> Mask:
    """j < kv[b] and i < q[b]: how many keys and queries of each sequence are real. Each a list or an integer
    tensor [batch], which a compiled graph takes as an input."""
    kv = _whole_numbers("lengths", "kv", kv)
    if q is None:
        return Mask("", ("lengths",), (kv,))
    return Mask("", ("lengths", "+"), (kv, _whole_numbers("lengths", "q", q)))


def documents(ids, kv_ids=None, in_order: bool = False) -> Mask:
    """Equal ids >= 0 see each other. ids: lists or an int32 or int64 tensor, [tokens] or [batch, tokens].
    in_order: you know that they never fall, those below 0 last. Nobody looks that up on a GPU, where it makes
    documents faster."""
    role = "documents in order" if in_order else "documents"
    if kv_ids is None:
        return Mask("", (role,), (_ids("ids", ids),))
    return Mask("", (role, "+"), (_ids("q_ids", ids), _ids("kv_ids", kv_ids)))


def alibi(slopes) -> Mask:
    """Adds -slopes[h] * |p(i) - j|; one slope >= 0 per head: a list, or a float tensor [num_heads], which has no
    gradient here."""
    if not isinstance(slopes, Tensor):
        return Mask(_read(f"alibi([{', '.join(str(float(slope)) for slope in slopes)}])"))
    _check_tensor("alibi", "slopes", slopes, (torch.float32, torch.float64), (1,))
    if slopes.requires_grad or forward_ad.unpack_dual(slopes).tangent is not None:
        raise ValueError("alibi: slopes have no derivatives here; detach them, or write bias(t) for slopes that "
                         "are learned")
    return Mask("", ("alibi",), (slopes[None],))
