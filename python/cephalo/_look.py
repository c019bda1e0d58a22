"""layer.look(x, tokens): what each head looks at, in a notebook, a file or the terminal."""

import math
import struct

from . import _cephalo
from ._html import CAPTION, HATCH, STYLE, caption, colour, escape, legend, save_page, short

EXACT = 64  # tokens up to which every weight is drawn; above, so many cells per side
_HIDDEN = " "  # as on a terminal: it is not a weight of 0


class Look:
    """The weights of all heads of one sequence; shows itself as HTML or as text.

    heads: [num_heads][rows][columns] floats, None where the mask hides. pooled: rows and columns
    are groups of tokens, and a number is the largest weight of its group.
    """

    def __init__(self, title, heads, q_tokens, kv_tokens, pooled, names=None):
        self.title = title
        self.heads = heads
        self.q_tokens = q_tokens  # names of the queries
        self.kv_tokens = kv_tokens  # names of the keys
        self.pooled = pooled
        self.names = names or [f"head {h}" for h in range(len(heads))]

    def _repr_html_(self):
        maps = "".join(self._head(h) for h in range(len(self.heads)))
        return (f'<div style="{STYLE}"><b>{escape(self.title)}</b><br>{escape(self._caption())}'
                f'<br>{legend()}<div style="display:flex;flex-wrap:wrap;gap:12px">{maps}</div></div>')

    def save(self, path):
        """Writes one HTML page that needs nothing else."""
        save_page(path, self.title, self._repr_html_())

    def __repr__(self):
        wide = 2 if len(self.kv_tokens) <= 32 else 1
        names = self._row_names()
        margin = max(map(len, names), default=0)
        lines = [self.title, self._caption(), f"{_cephalo.shades()}  blank: hidden"]
        for head, rows in zip(self.names, self.heads):
            lines.append(head)
            for name, row in zip(names, rows):
                cells = "".join(_shade(weight) * wide for weight in row)
                lines.append(f"  {name:>{margin}} |{cells}|")
        return "\n".join(lines)

    def _caption(self):
        rows = self.heads[0]
        return caption(len(self.q_tokens), len(self.kv_tokens), len(rows), len(rows[0]))

    def _row_names(self):
        if self.pooled:
            return spans(self.q_tokens, len(self.heads[0]))
        return [short(name) for name in self.q_tokens]

    def _head(self, h):
        """One head as SVG: no script, no reference, a title for every cell."""
        rows = self.heads[h]
        picture = HeadSvg(spans(self.q_tokens, len(rows)), spans(self.kv_tokens, len(rows[0])))
        label = escape(f"{self.names[h]}: {CAPTION}")
        return (f'<div><div style="font-weight:bold">{escape(self.names[h])}</div><svg role="img" '
                f'aria-label="{label}" width="{picture.width}" height="{picture.height}">'
                f"{picture.labels(8 if self.pooled else 1)}{picture.hidden(rows)}{picture.cells(rows)}"
                f"{picture.frame()}</svg></div>")


class HeadSvg:
    """Where things are in the SVG of one head; q_names, kv_names: of its rows and columns."""

    def __init__(self, q_names, kv_names, cell=None):
        longest = max(len(q_names), len(kv_names))
        self.cell = cell or (20 if longest <= 12 else 14 if longest <= 24 else 9)
        self.font = 11 if self.cell > 12 else 9 if self.cell > 9 else 8
        self.q_names, self.kv_names = q_names, kv_names
        letters = max((len(short(name)) for name in [*q_names, *kv_names]), default=0)
        self.margin = 8 + round(0.65 * self.font * letters)
        self.width = self.margin + len(kv_names) * self.cell + 2
        self.height = self.margin + len(q_names) * self.cell + 2

    def labels(self, step):
        """The name of each step-th row and column."""
        parts = [f'<g font-size="{self.font}" font-family="monospace" fill="#222">']
        for i in range(0, len(self.q_names), step):
            y = self.margin + (i + 0.5) * self.cell + 0.35 * self.font
            parts.append(f'<text x="{self.margin - 4}" y="{y:.1f}" text-anchor="end">'
                         f"{escape(short(self.q_names[i]))}</text>")
        for j in range(0, len(self.kv_names), step):
            x, y = self.margin + (j + 0.5) * self.cell + 0.35 * self.font, self.margin - 4
            parts.append(f'<text transform="translate({x:.1f} {y}) rotate(-90)">'
                         f"{escape(short(self.kv_names[j]))}</text>")
        return "".join(parts) + "</g>"

    def hidden(self, rows):
        """A stroke through each cell that the mask hides."""
        strokes = "".join(f"M{x} {y + self.cell}l{self.cell} -{self.cell}"
                          for x, y, weight, *_ in self._places(rows) if weight is None)
        return f'<path stroke="{HATCH}" d="{strokes}"/>'

    def cells(self, rows):
        """Every other cell, with a title that says its weight."""
        parts = []
        for x, y, weight, i, j in self._places(rows):
            if weight is not None:
                words = escape(f"{self.q_names[i]} → {self.kv_names[j]}: {weight:.4f}")
                parts.append(f'<path fill="{colour(weight)}" d="{self._square(x, y)}"><title>{words}'
                             "</title></path>")
        return "".join(parts)

    def shades(self, rows, count):
        """The same in a few shades, one path each: without titles, and much shorter."""
        paths = {}
        for x, y, weight, *_ in self._places(rows):
            if weight is not None:
                paths.setdefault(round(weight * count), []).append(self._square(x, y))
        return "".join(f'<path fill="{colour(shade / count)}" d="{"".join(squares)}"/>'
                       for shade, squares in sorted(paths.items()))

    def frame(self):
        size = f'width="{self.width - self.margin - 2}" height="{self.height - self.margin - 2}"'
        return f'<rect x="{self.margin}" y="{self.margin}" {size} fill="none" stroke="#888"/>'

    def _places(self, rows):
        for i, row in enumerate(rows):
            for j, weight in enumerate(row):
                yield self.margin + j * self.cell, self.margin + i * self.cell, weight, i, j

    def _square(self, x, y):
        return f"M{x} {y}h{self.cell}v{self.cell}h-{self.cell}z"


def _shade(weight):
    return _HIDDEN if weight is None else _cephalo.shade(weight)


def spans(names, cells):
    """What each row or column stands for: the name of a token, or a range such as "8–15"."""
    edges = [-(-cell * len(names) // cells) for cell in range(cells + 1)]  # rounded up
    return [names[begin] if end == begin + 1 else f"{begin}–{end - 1}"
            for begin, end in zip(edges, edges[1:])]


def _names(given, count, argument):
    if given is None:
        return [str(i) for i in range(count)]
    names = [str(name) for name in given]
    if len(names) != count:
        raise ValueError(f"look: {argument} has {len(names)} names, the input has {count} tokens")
    return names


def look(layer, x, tokens=None, kv=None, kv_tokens=None, mask=None, batch=0):
    """What each head of a layer looks at. x: [batch, tokens, d_in] or [tokens, d_in] -> Look

    tokens: a name for each token of x; kv, mask: as the layer is called; kv_tokens: names of kv's.
    batch: which sequence. Up to 64 tokens every weight is drawn, above that pooled maps.
    """
    count = x.shape[-2]
    kv_count = count if kv is None else kv.shape[-2]
    names = _names(tokens, count, "tokens")
    kv_names = names if kv is None else _names(kv_tokens, kv_count, "kv_tokens")
    pooled = max(count, kv_count) > EXACT
    heads = (_pooled if pooled else _exact)(layer, x, kv, mask, batch)
    return Look(repr(layer), heads, names, kv_names, pooled)


def _traced(layer, x, kv=None, mask=None):
    """A trace that does not count as a call. Weights are shown before dropout, so it does not matter what a
    layer in training draws."""
    return layer.trace(x, kv=kv, mask=mask, call=0, generator=_cephalo.TorchGenerator(0))


def _exact(layer, x, kv, mask, batch):
    trace = _traced(layer, x, kv, mask)
    weights = _by_batch_and_head(trace, "weights")[batch]
    masked = _by_batch_and_head(trace, "scores_masked")[batch]
    return [[[None if score == -float("inf") else weight for weight, score in zip(row, scores)]
             for row, scores in zip(head, head_scores)]
            for head, head_scores in zip(weights, masked)]


def _by_batch_and_head(trace, key):
    """The lists of a step, [batch][heads][rows][columns], whichever of the first two it lacks: a
    trace has the rank of its x, and that of a one-head rung has no axis of heads."""
    numbers = trace[key].tolist()
    batches = [numbers] if len(trace["x"].shape) == 2 else numbers
    return batches if "q_heads" in trace else [[one_head] for one_head in batches]


def _pooled(layer, x, kv, mask, batch):
    """The matrices are never stored: one call of the layer, then one pass over the pairs."""
    q, k, _, lse, mask = layer.forward_train(x, kv=kv, mask=mask, drop=False)[1].heads
    heads = _maps(q, k, lse, mask, batch)
    if mask is None:
        return heads
    # Where all scores are alike, every key that may be seen has some weight: what has none is hidden.
    q, k = _zeros_like(q), _zeros_like(k)
    alike = _maps(q, k, _cephalo.attend(q, k, k, mask=mask, return_lse=True).lse, mask, batch)
    return [[[weight if seen > 0 else None for weight, seen in zip(*rows)] for rows in zip(*pair)]
            for pair in zip(heads, alike)]


def _maps(q, k, lse, mask, batch):
    return [_cephalo.pooled_weights(q, k, lse, EXACT, head, batch=batch, mask=mask).largest.tolist()
            for head in range(q.shape[1])]


def _zeros_like(x):
    """Zeros for q or k of the same tokens: [batch, heads, tokens, 1]"""
    shape = (*x.shape[:-1], 1)
    code = "d" if str(x.dtype) == "float64" else "f"
    return memoryview(bytearray(math.prod(shape) * struct.calcsize(code))).cast(code, shape)
