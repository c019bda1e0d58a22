"""What layer.trace gives: a dict of arrays that a notebook shows step by step."""

from itertools import groupby
from typing import Any, NamedTuple

from ._html import escape, save_page

_ROWS, _COLUMNS = 6, 8
_STYLE = "background:#fff;color:#222;font:13px sans-serif;padding:8px"
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
    """key -> array in the order of the steps; `steps` has what else is known of each."""

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

    def _repr_html_(self):
        parts = [f'<div style="{_STYLE}"><b>{escape(self.title)}</b>']
        for (number, name), steps in groupby(self.steps, key=lambda s: (s.number, s.name)):
            parts.append(f'<h4 style="margin:10px 0 2px">{escape(number)} {escape(name)}</h4>'
                         '<div style="display:flex;flex-wrap:wrap;gap:4px 24px">')
            parts.extend(_step(step) for step in steps)
            parts.append("</div>")
        return "".join(parts) + "</div>"

    def save(self, path):
        """The same as a page of its own."""
        save_page(path, self.title, self._repr_html_())


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
        cells = [f"{number:.4f}" for number in numbers[i].tolist()[:_COLUMNS]]
        cells += ["…"] if columns > _COLUMNS else []
        lines.append("<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>")
    leading = "0, " * (len(step.shape) - 2)
    part = f"{step.key}[{leading}:{min(rows, _ROWS)}, :{min(columns, _COLUMNS)}]"
    return (f'<div style="color:#666">{escape(part)}</div>'
            f'<table style="border-collapse:collapse">{"".join(lines)}</table>')
