"""The guided exercise: attention written by the reader, checked step by step (cephalo.check)."""

from typing import Any, NamedTuple

from . import _cephalo
from ._html import STYLE, escape

_asked = {}  # step -> hints given so far


class Exercise(NamedTuple):
    """One small layer and its input. All sizes differ, so an axis in the wrong place is noticed."""

    x: Any  # [batch, tokens, d_in]
    W_query: Any  # [d_out, d_in], out x in as PyTorch's: q = x @ W_query.T
    W_key: Any
    W_value: Any
    out_weight: Any  # [d_out, d_out]
    out_bias: Any  # [d_out]
    batch: int
    tokens: int
    d_in: int
    d_out: int
    num_heads: int
    head_dim: int
    seed: int


def exercise():
    """Always the same numbers; cephalo.check(step, array) knows the answers. hint starts with the first one again."""
    _asked.clear()
    return Exercise(**_cephalo.exercise())


class Hint:
    """A hint; prints as a sentence. number of count: the later, the nearer to the answer."""

    def __init__(self, step, text, number, count):
        self.step, self.text, self.number, self.count = step, text, number, count

    def __repr__(self):
        more = "" if self.number < self.count else "\nThat was the last hint: cephalo.solution shows the lines."
        return f"{self.step}, hint {self.number} of {self.count}: {self.text}{more}"


def hint(step, number=None):
    """A hint for a step of the exercise -> Hint

    Asked again for the same step, the next one, which goes further. number: this one, from 1.
    """
    hints = _cephalo._exercise_hints(step)
    if number is None:
        number = min(_asked.get(step, 0) + 1, len(hints))
    if not 1 <= number <= len(hints):
        raise IndexError(f"hint: {step} has hints 1 to {len(hints)}, not {number}")
    _asked[step] = number
    return Hint(step, hints[number - 1], number, len(hints))


class Solution:
    """A step solved; shows itself as HTML or as text. code: lines for NumPy. array: what they give."""

    def __init__(self, step, lines, array, text):
        self.step, self.code, self.array = step, "\n".join(lines), array
        self._text = text

    def __repr__(self):
        return self._text.rstrip("\n")

    def _repr_html_(self):
        said = self._text.rstrip("\n").splitlines()[-1]
        return (f'<div style="{STYLE}"><b>{escape(self.step)}</b><pre>{escape(self.code)}</pre>'
                f"{escape(said)}</div>")


def solution(step):
    """The lines that solve a step of the exercise, and the array they give -> Solution"""
    return Solution(step, *_cephalo._exercise_solution(step))
