"""cephalo.look(text): what every head of a model looks at, and what comes next."""

import functools
import os
from typing import Any, NamedTuple

from . import _cephalo
from ._html import STYLE, caption, escape, legend, save_page, short
from ._look import EXACT, HeadSvg, Look, spans
from ._look_token import TokenLink, TokenLook, find_token

_CELLS = 24  # of a small map, at most
_SHADES = 32  # colours of a small map
_LINKS = 3


class HeadLook(NamedTuple):
    """What one head looks at."""

    layer: int
    head: int
    labels: list  # (label, score): patterns of its weights, not effects on the output
    links: list  # (query, key, weight): where queries look most, the strongest first
    metrics: Any  # HeadMetrics on the text
    probe: Any  # ProbeScores, or None where the model is too small for a probe


class TextLook:
    """A text as a model sees it; shows itself as HTML or as text.

    tokens: their names. heads: a HeadLook each, layer by layer. predictions: (token, probability).
    recording: has the weights of any head. report: the LookReport that all of it comes from.
    """

    def __init__(self, text, model, recording, report):
        self.text = text
        self.model = model
        self.recording = recording
        self.report = report
        self.ids = recording.ids
        self.tokens = report.tokens
        self.reports = report.heads
        self.heads = [_head_look(recording, head) for head in self.reports]
        self.predictions = report.predictions

    @property
    def title(self):
        return (f"{self.model.name}: {self.recording.num_layers} layers × "
                f"{self.recording.num_heads} heads, {len(self.tokens)} tokens")

    def head(self, layer, head):
        """One head in full, as layer.look shows it: weight by weight up to 64 tokens."""
        name = f"layer {layer} head {head}{_labels(self._at(layer, head))}"
        pooled = len(self.tokens) > EXACT
        if pooled:
            weights = self.recording.pooled(layer, head, EXACT).largest.tolist()
        else:
            weights = self.recording.weights(layer, heads=[head])[0].tolist()
        visible = [[weight if j <= i else None for j, weight in enumerate(row)]
                   for i, row in enumerate(weights)]
        return Look(self.title, [visible], self.tokens, self.tokens, pooled, [name])

    def token(self, token):
        """What one token looks at most in each head -> TokenLook

        token: its index or its name; if several tokens have that name, the first is shown.
        """
        index, others = find_token(self.tokens, token)
        links = []
        for layer in range(self.recording.num_layers):
            rows = self.recording.weights(layer, rows=[index]).tolist()
            for head, (row,) in enumerate(rows):
                key = max(range(len(row)), key=row.__getitem__)
                links.append(TokenLink(layer, head, key, row[key]))
        return TokenLook(self.tokens, index, others, sorted(links, key=lambda link: -link.weight))

    def picture(self, layer=None, head=None):
        """A Picture of the heads (of one layer, of one head), to save as PNG."""
        if head is not None:
            return _cephalo.draw_head(self.recording, self._report(layer, head), self.text, self.tokens)
        reports = [r for r in self.reports if layer is None or r.layer == layer]
        return _cephalo.draw_heads(self.recording, reports, self.text, self.tokens)

    def json(self, weights=()):
        """What cephalo look --json prints; weights: include those of these heads, each (layer, head)."""
        return self.report.json(list(weights))

    def save(self, path):
        """Writes what a notebook shows as one HTML page that needs nothing else."""
        save_page(path, self.title, self._repr_html_())

    def _report(self, layer, head):
        found = [r for r in self.reports if (r.layer, r.head) == (layer, head)]
        if not found:
            raise ValueError(f"look: there is no layer {layer} head {head}: the model has "
                             f"{self.recording.num_layers} layers of {self.recording.num_heads} heads")
        return found[0]

    def _at(self, layer, head):
        return self.heads[self.reports.index(self._report(layer, head))]

    def __repr__(self):
        lines = [f'"{self.text}"', self.title, "tokens: " + " ".join(map(short, self.tokens)), ""]
        for head in self.heads:
            links = ", ".join(self._link(*link) for link in head.links)
            lines.append(f"layer {head.layer} head {head.head}{_labels(head)}: {links}")
        next_tokens = ", ".join(f"{short(name)} {share:.0%}" for name, share in self.predictions)
        return "\n".join([*lines, "", f"next: {next_tokens}"])

    def _link(self, query, key, weight):
        return f"{short(self.tokens[query])} → {short(self.tokens[key])} {weight:.2f}"

    def _repr_html_(self):
        names = " ".join(f'<code style="background:#eee;padding:1px 3px">{escape(short(name))}</code>'
                         for name in self.tokens)
        layers = "".join(self._layer(layer) for layer in range(self.recording.num_layers))
        return (f'<div style="{STYLE}"><b>{escape(self.text)}</b><br>{escape(self.title)}<br>{names}'
                f"<br>{self._next()}<br>{escape(self._caption())}<br>{legend()}{layers}</div>")

    def _caption(self):
        tokens, cells = len(self.tokens), self._cells()
        return caption(tokens, tokens, cells, cells)

    def _cells(self):
        return min(len(self.tokens), _CELLS)

    def _next(self):
        shares = " · ".join(f"<code>{escape(short(name))}</code> {share:.0%}"
                            for name, share in self.predictions)
        return f"next token: {shares}"

    def _layer(self, layer):
        heads = "".join(self._small_map(head) for head in self.heads if head.layer == layer)
        return (f'<h4 style="margin:10px 0 2px">layer {layer}</h4>'
                f'<div style="display:flex;flex-wrap:wrap;gap:10px">{heads}</div>')

    def _small_map(self, look):
        """One head as SVG: its tokens, a path for each shade, no script, no reference."""
        cells = self._cells()
        rows = [[weight if j <= i else None for j, weight in enumerate(row)] for i, row in
                enumerate(self.recording.pooled(look.layer, look.head, cells).largest.tolist())]
        names = spans(self.tokens, cells)
        picture = HeadSvg(names, names, cell=14 if cells <= 12 else 11)
        links = "; ".join(self._link(*link) for link in look.links)
        words = escape(f"layer {look.layer} head {look.head}{_labels(look)}: {links}")
        return (f'<div><div style="font-size:12px">head {look.head}{escape(_labels(look))}</div>'
                f'<svg role="img" aria-label="{words}" width="{picture.width}" height="{picture.height}">'
                f"<title>{words}</title>{picture.labels(1)}{picture.hidden(rows)}"
                f"{picture.shades(rows, _SHADES)}{picture.frame()}</svg></div>")


def _labels(look):
    return "".join(f" {label} {score:.2f}" for label, score in look.labels)


def _head_look(recording, report):
    links = _cephalo.strongest_links(recording, report.layer, report.head, _LINKS)
    return HeadLook(report.layer, report.head, report.labels, links, report.metrics, report.probe)


@functools.cache
def _builtin():
    model = _cephalo.builtin_model()
    return model.prepare(), _cephalo.probe_for_look(model)


def look(text, model=None, *, begin=True, top=5):
    """What every head of a model looks at in a text, and what comes next -> TextLook

    model: a Gpt with a tokenizer, the folder of one, or None for the built-in model. begin: prepend the token
    that begins a text. top: how many of the likeliest next tokens to show.
    """
    if not isinstance(text, (str, bytes)):
        raise TypeError("look: text must be str or bytes; a layer has look(x, tokens) as a method")
    if model is None:
        model, probe = _builtin()
    else:
        if isinstance(model, (str, os.PathLike)):
            model = _cephalo.Gpt.load(model)
        probe = _cephalo.probe_for_look(model)
    words = text if isinstance(text, str) else text.decode("utf-8", "backslashreplace")
    recording = _cephalo.Recording(model, text, begin)
    return TextLook(words, model, recording,
                    _cephalo.LookReport(recording, words, probe, begun=bool(begin), top=top))
