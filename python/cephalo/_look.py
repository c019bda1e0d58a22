"""layer.look(x, tokens): what each head looks at, in a notebook, a file or the terminal."""

import math
from array import array

from . import _cephalo
from ._html import colour, escape, save_page

EXACT = 64  # tokens up to which every weight is drawn; above, so many cells per side
_CHUNK = 64
_SHADES = " ░▒▓█"  # next to nothing, then up to a quarter, a half ...
_HIDDEN = "·"
_CAPTION = "row = query, looks at → column = key"
_STYLE = "background:#fff;color:#222;font:13px sans-serif;padding:8px"


class Look:
    """The weights of all heads of one sequence; shows itself as HTML or as text.

    heads: [num_heads][rows][columns] floats, None where the mask hides. pooled: rows and columns
    are groups of tokens, and a number is the largest weight of its group.
    """

    def __init__(self, title, heads, q_tokens, kv_tokens, pooled):
        self.title = title
        self.heads = heads
        self.q_tokens = q_tokens  # names of the queries
        self.kv_tokens = kv_tokens  # names of the keys
        self.pooled = pooled

    def _repr_html_(self):
        maps = "".join(self._head(h) for h in range(len(self.heads)))
        return (f'<div style="{_STYLE}"><b>{escape(self.title)}</b><br>{escape(self._caption())}'
                f'<br>{_legend()}<div style="display:flex;flex-wrap:wrap;gap:12px">{maps}</div></div>')

    def save(self, path):
        """The same as a page of its own, which needs nothing else."""
        save_page(path, self.title, self._repr_html_())

    def __repr__(self):
        wide = 2 if len(self.kv_tokens) <= 32 else 1
        names = self._row_names()
        margin = max(map(len, names), default=0)
        lines = [self.title, self._caption(), f"0 '{_SHADES}' 1, {_HIDDEN} hidden"]
        for h, rows in enumerate(self.heads):
            lines.append(f"head {h}")
            for name, row in zip(names, rows):
                cells = "".join(_shade(weight) * wide for weight in row)
                lines.append(f"  {name:>{margin}} |{cells}|")
        return "\n".join(lines)

    def _caption(self):
        if not self.pooled:
            return _CAPTION
        cells = f"{len(self.heads[0])} × {len(self.heads[0][0])}"
        return (f"{_CAPTION}; {len(self.q_tokens)} × {len(self.kv_tokens)} tokens pooled into "
                f"{cells} cells, each the largest weight in it")

    def _row_names(self):
        if self.pooled:
            return [_span(i, len(self.heads[0]), self.q_tokens) for i in range(len(self.heads[0]))]
        return [_short(name) for name in self.q_tokens]

    def _head(self, h):
        """One head as SVG: no script, no reference, a title for every cell."""
        rows = self.heads[h]
        q_names, kv_names = self.q_tokens, self.kv_tokens
        if self.pooled:
            q_names = [_span(i, len(rows), q_names) for i in range(len(rows))]
            kv_names = [_span(j, len(rows[0]), kv_names) for j in range(len(rows[0]))]
        picture = _Picture(len(rows), len(kv_names), q_names, kv_names)
        label = escape(f"head {h}: {_CAPTION}")
        return (f'<div><div style="font-weight:bold">head {h}</div><svg role="img" aria-label="{label}"'
                f' width="{picture.width}" height="{picture.height}">{picture.labels(self.pooled)}'
                f"{picture.cells(rows)}</svg></div>")


class _Picture:
    """Where things are in the SVG of one head."""

    def __init__(self, rows, columns, q_names, kv_names):
        longest = max(rows, columns)
        self.cell = 20 if longest <= 12 else 14 if longest <= 24 else 9
        self.font = 11 if self.cell > 9 else 8
        self.q_names, self.kv_names = q_names, kv_names
        letters = max((len(_short(name)) for name in [*q_names, *kv_names]), default=0)
        self.margin = 8 + round(0.65 * self.font * letters)
        self.width = self.margin + columns * self.cell + 2
        self.height = self.margin + rows * self.cell + 2

    def labels(self, every_eighth):
        step = 8 if every_eighth else 1
        parts = [f'<g font-size="{self.font}" font-family="monospace" fill="#222">']
        for i in range(0, len(self.q_names), step):
            y = self.margin + (i + 0.5) * self.cell + 0.35 * self.font
            parts.append(f'<text x="{self.margin - 4}" y="{y:.1f}" text-anchor="end">'
                         f"{escape(_short(self.q_names[i]))}</text>")
        for j in range(0, len(self.kv_names), step):
            x, y = self.margin + (j + 0.5) * self.cell + 0.35 * self.font, self.margin - 4
            parts.append(f'<text transform="translate({x:.1f} {y}) rotate(-90)">'
                         f"{escape(_short(self.kv_names[j]))}</text>")
        return "".join(parts) + "</g>"

    def cells(self, rows):
        parts, strokes = [], []
        for i, row in enumerate(rows):
            for j, weight in enumerate(row):
                x, y = self.margin + j * self.cell, self.margin + i * self.cell
                if weight is None:
                    strokes.append(f"M{x} {y + self.cell}l{self.cell} -{self.cell}")
                    continue
                words = escape(f"{self.q_names[i]} → {self.kv_names[j]}: {weight:.4f}")
                parts.append(f'<path fill="{colour(weight)}" d="M{x} {y}h{self.cell}v{self.cell}'
                             f'h-{self.cell}z"><title>{words}</title></path>')
        size = f'width="{self.width - self.margin - 2}" height="{self.height - self.margin - 2}"'
        return (f'<path stroke="#ccc" d="{"".join(strokes)}"/>{"".join(parts)}'
                f'<rect x="{self.margin}" y="{self.margin}" {size} fill="none" stroke="#888"/>')


def _legend():
    steps = "".join(f'<rect x="{18 + 12 * n}" y="2" width="12" height="12" fill="{colour(n / 10)}"/>'
                    for n in range(11))
    return ('<svg role="img" aria-label="colours: white is 0, dark blue is 1, hatched is hidden" '
            'width="270" height="18"><g font-size="11" font-family="monospace" fill="#222">'
            f'<text x="4" y="12">0</text>{steps}<rect x="18" y="2" width="132" height="12" fill="none" '
            'stroke="#888"/><text x="154" y="12">1</text><path stroke="#ccc" d="M176 14l12 -12M182 14l6 -6'
            'M176 8l6 -6"/><rect x="176" y="2" width="12" height="12" fill="none" stroke="#888"/>'
            '<text x="194" y="12">hidden</text></g></svg>')


def _shade(weight):
    if weight is None:
        return _HIDDEN
    return _SHADES[0 if weight < 0.01 else min(math.ceil(4 * weight), 4)]


def _short(name):
    """A token in one line of at most 12 letters."""
    name = "".join(letter if letter.isprintable() else "␣" for letter in name)
    return name if len(name) <= 12 else name[:11] + "…"


def _span(cell, cells, names):
    """The tokens that a pooled row or column stands for."""
    begin, end = (-(-edge * len(names) // cells) for edge in (cell, cell + 1))  # rounded up
    return names[begin] if end == begin + 1 else f"{begin}–{end - 1}"


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
    """A trace that counts as no call. Weights are shown as they are before dropout, so a layer in
    training may draw whatever it likes."""
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
    """The matrices are never stored: q and k in pieces, then one pass over the pairs."""
    if 0 < layer.context_length < x.shape[-2]:
        raise ValueError(f"look: {x.shape[-2]} tokens exceed context_length ({layer.context_length})")
    q, k = _queries_and_keys(layer, x, kv)
    if mask is not None and not isinstance(mask, _cephalo.Mask):
        mask = _cephalo.keep(mask)  # FastMultiHeadAttention's bare array
    if layer.causal:
        mask = _cephalo.causal() if mask is None else _cephalo.causal() & mask
    lse = _cephalo.attend(q, k, k, mask=mask, return_lse=True).lse
    return [_cephalo.pooled_weights(q, k, lse, EXACT, head, batch=batch, mask=mask).largest.tolist()
            for head in range(layer.num_heads)]


def _queries_and_keys(layer, x, kv):
    """Each [batch, heads, tokens, head_dim]. Projections know nothing of other tokens, so a trace
    of a few tokens at a time has them without its tokens × tokens scores; rotations know positions,
    so there the whole is traced."""
    code = "d" if layer.dtype == "float64" else "f"
    first = _rows(x, 0, 1, code)
    if "q_rotated" in _traced(layer, first, None if kv is None else _rows(kv, 0, 1, code)):
        whole = [_traced(layer, x, kv)]
        return _joined(whole, "q", code), _joined(whole, "k", code)
    if kv is None:
        pieces = [_traced(layer, part) for part in _pieces(x, code)]
        return _joined(pieces, "q", code), _joined(pieces, "k", code)
    one = _rows(kv, 0, 1, code)
    queries = [_traced(layer, part, one) for part in _pieces(x, code)]
    keys = [_traced(layer, first, part) for part in _pieces(kv, code)]
    return _joined(queries, "q", code), _joined(keys, "k", code)


def _pieces(x, code):
    return [_rows(x, begin, begin + _CHUNK, code) for begin in range(0, x.shape[-2], _CHUNK)]


def _rows(x, begin, end, code):
    """x[..., begin:end, :], also of an array that cannot be cut."""
    try:
        return x[..., begin:end, :]
    except (TypeError, NotImplementedError):
        numbers = x.tolist()
    batches = [numbers] if len(x.shape) == 2 else numbers
    cut = [rows[begin:end] for rows in batches]
    return _packed(cut, (len(cut), len(cut[0]), x.shape[-1]), code)


def _joined(traces, name, code):
    """q or k of traces of some tokens each -> [batch, heads, all tokens, head_dim]"""
    key = name + "_heads" if name + "_heads" in traces[0] else name
    pieces = [_by_batch_and_head(trace, key) for trace in traces]
    batch, heads = len(pieces[0]), len(pieces[0][0])
    whole = [[[row for piece in pieces for row in piece[b][h]] for h in range(heads)]
             for b in range(batch)]
    return _packed(whole, (batch, heads, len(whole[0][0]), len(whole[0][0][0])), code)


def _packed(numbers, shape, code):
    """Nested lists as memory that the engine reads."""
    for _ in shape[1:]:
        numbers = [number for part in numbers for number in part]
    return memoryview(array(code, numbers)).cast("B").cast(code, shape)
