"""What layer.trace returns: a dict of arrays that a notebook shows step by step."""

import pathlib
from itertools import groupby
from typing import Any, NamedTuple

from . import _cephalo
from ._html import STYLE, escape, save_page, short

_ROWS, _COLUMNS = 6, 8
_CELL = "padding:1px 6px;text-align:right;font:12px monospace;border:1px solid #ddd"


class Step(NamedTuple):
    """One array on the way from x to the output."""

    number: str  # "4a"
    name: str  # "SCORES"
    key: str  # "scores"
    formula: str
    shape: tuple
    strides: tuple  # as the layer saw it, in elements; `value` is a dense copy
    moved: bool  # False: the same memory as the step before, looked at in another way
    note: str
    value: Any


class Trace(dict):
    """key -> array, in the order of the steps; `steps` has the details of each."""

    def __init__(self, title, mask_first, steps):
        super().__init__((step.key, step.value) for step in steps)
        self.title = title
        self.mask_first = mask_first  # the book's order; False: attend's, the scale comes first
        self.steps = steps

    def __repr__(self):
        lines = [self.title]
        for step in self.steps:
            memory = "" if step.moved else "  same memory"
            lines.append(f"{step.number:2} {step.name:11} {step.key:15} {str(step.shape):16} "
                         f"{step.formula}{memory}")
        return "\n".join(lines)

    def picture(self, tokens=None):
        """The width cut into heads, and what the axes do on the way -> SplitPicture

        tokens: a name for each token of x. Rungs 1 to 4 split nothing: a ValueError.
        """
        sizes = self._sizes()
        if sizes is None:
            raise ValueError(f"picture: nothing is split into heads in a trace of {self.title}")
        return SplitPicture(sizes, tokens)

    def _sizes(self):
        """What SplitPicture is made from; None where nothing is split, or there is nothing."""
        shapes = {step.key: step.shape for step in self.steps}
        if "q_split" not in shapes or 0 in shapes["scores"]:
            return None
        q, v = shapes["q_heads"], shapes["v_heads"]
        return (q[0] if len(q) == 4 else 0, q[-2], v[-2], q[-3], v[-3], q[-1], v[-1])

    def _repr_html_(self):
        parts = [f'<div style="{STYLE}"><b>{escape(self.title)}</b>']
        if self._sizes() is not None:
            parts.append("<details><summary>the split into heads, as a picture</summary>"
                         f"{self.picture()._repr_html_()}</details>")
        for (number, name), steps in groupby(self.steps, key=lambda s: (s.number, s.name)):
            parts.append(f'<h4 style="margin:10px 0 2px">{escape(number)} {escape(name)}</h4>'
                         '<div style="display:flex;flex-wrap:wrap;gap:4px 24px">')
            parts.extend(_step(step) for step in steps)
            parts.append("</div>")
        return "".join(parts) + "</div>"

    def save(self, path):
        """Writes the same as one HTML page."""
        save_page(path, self.title, self._repr_html_())


class SplitPicture:
    """How the width is cut into heads, how axes change places and how the inner axis cancels in @; shows
    itself as SVG or as text."""

    def __init__(self, sizes, tokens=None):
        self._sizes = sizes
        self._tokens = [short(str(token)) for token in tokens or []]

    def __repr__(self):
        return _cephalo._split_text(self._sizes, self._tokens)

    def _repr_html_(self):
        return _cephalo._split_svg(self._sizes, self._tokens, True)

    def save(self, path):
        """Writes an SVG file."""
        svg = _cephalo._split_svg(self._sizes, self._tokens, False)
        pathlib.Path(path).write_text(svg, encoding="utf-8")


def _step(step):
    memory = "new memory" if step.moved else "same memory"
    facts = [f"shape {step.shape}", f"strides {step.strides}"]
    facts += [] if step.key == "x" else [memory]  # the input is wherever the caller has it
    note = step.note.removeprefix("same memory").lstrip(", ")
    facts += [note] if note else []
    return (f'<div style="margin:2px 0 6px 16px"><b>{escape(step.key)}</b> <code>'
            f"{escape(step.formula)}</code><br>{escape(' · '.join(facts))}{_corner(step)}</div>")


def _corner(step):
    """The first rows of the first matrix, and which part of the array that is."""
    numbers = step.value
    for _ in step.shape[2:]:
        numbers = numbers[0]
    rows, columns = step.shape[-2:]
    lines = []
    for i in range(min(rows, _ROWS)):
        cells = [_number(number) for number in numbers[i].tolist()[:_COLUMNS]]
        cells += ["…"] if columns > _COLUMNS else []
        lines.append("<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>")
    leading = "0, " * (len(step.shape) - 2)
    part = f"{step.key}[{leading}:{min(rows, _ROWS)}, :{min(columns, _COLUMNS)}]"
    return (f'<div style="color:#666">{escape(part)}</div>'
            f'<table style="border-collapse:collapse">{"".join(lines)}</table>')


def _number(number):
    return str(number) if isinstance(number, int) else f"{number:.4f}"
