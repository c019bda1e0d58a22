"""Gpt.trace(text): one head by hand, from q · k to what it adds."""

from typing import NamedTuple

from . import _cephalo
from ._html import STYLE, colour, escape, save_page, short
from ._look_token import find_token

_KEYS = 10  # in a table: the strongest
_VALUES = 3  # columns of v
_BAR = 160  # pixels of the longest one
_CELL = "padding:1px 8px;text-align:right;font:12px monospace;border-bottom:1px solid #eee"
_NAME = _CELL.replace("right", "left")


class TracedKey(NamedTuple):
    """What the query makes of one key."""

    token: int  # its index
    product: float  # q · k
    score: float  # product * scale
    weight: float  # softmax of the scores
    adds: float  # weight * |v W_out|: how much the key puts into the residual stream


class HeadTrace:
    """One head at one query token, step by step; shows itself as HTML or as text.

    q: [head_dim], k: [keys, head_dim], v: [keys, v_dim], context: [v_dim], as the model computed them (q and k
    after rotary), float64. keys: a TracedKey for each token that the query may look at. head_norms: |z W_out| of every
    head of the layer, which is how much it adds at the query; shares: those over their sum. added_norm: what all heads add
    together, bias_norm: the output projection's bias. batch: (text, tokens) of what ran at once.
    """

    def __init__(self, traced):
        self._traced = traced
        for name in ("model", "text", "tokens", "layer", "head", "token", "rotary", "scale", "q", "k", "v",
                     "context", "keys", "head_norms", "shares", "added_norm", "bias_norm", "batch", "sequence"):
            setattr(self, name, getattr(traced, name))

    @property
    def title(self):
        return f"{self._traced.name}: layer {self.layer} head {self.head}"

    def show(self, top=_KEYS, explain=False):
        """As cephalo trace prints it. top: how many keys; explain: what each step is for, too."""
        return self._traced.show(top, explain)

    def json(self):
        """As cephalo trace --json prints it: docs/schema/trace.json."""
        return self._traced.json()

    def save(self, path):
        """Writes what a notebook shows as one HTML page that needs nothing else."""
        save_page(path, self.title, self._repr_html_())

    def __repr__(self):
        return self.show().rstrip("\n")

    def _repr_html_(self):
        count = len(self.keys)
        about = (f"query {self.token} <b>{escape(short(self.tokens[self.token]))}</b> and the "
                 f"{'one key' if count == 1 else f'{count} keys'} it may look at")
        if self.rotary:
            about += "; q and k are taken after rotation by their positions (rotary)"
        if self._traced.training_note:
            about += f"<br>{escape(self._traced.training_note)}"
        return (f'<div style="{STYLE}"><b>{escape(self.text)}</b><br>{escape(self.title)}<br>{about}'
                f"{self._batch()}{self._table()}{self._worked()}{self._shares()}</div>")

    def _batch(self):
        if len(self.batch) == 1:
            return ""
        longest = max(tokens for _, tokens in self.batch)
        rows = "".join(
            f'<li>{"<b>" if b == self.sequence else ""}{escape(text)}{"</b>" if b == self.sequence else ""}: '
            f"{tokens} tokens{f' + {longest - tokens} padding' if tokens < longest else ''}</li>"
            for b, (text, tokens) in enumerate(self.batch))
        return (f"<details><summary>a batch of {len(self.batch)} texts, ids [{len(self.batch)}, {longest}]; "
                "shorter ones end in padding, which is never looked at</summary>"
                f'<ol start="0">{rows}</ol></details>')

    def _table(self):
        values = self._traced.strongest_values[:_VALUES]
        shown = sorted({*self._traced.strongest[:_KEYS], self.token})
        v, context = self.v.tolist(), self.context.tolist()
        names = ["j", "key", "q · k", f"/ √{len(self.q.tolist())}", "weight", "adds", *(f"v[{d}]" for d in values)]
        rows = ["".join(f'<th style="{_NAME if name == "key" else _CELL}">{escape(name)}</th>' for name in names)]
        for j in shown:
            key = self.keys[j]
            ink = "#fff" if key.weight < 0.5 else "#000"
            rows.append(
                f'<td style="{_CELL}">{j}</td><td style="{_NAME}">{escape(short(self.tokens[j]))}</td>'
                f"{_number(key.product)}{_number(key.score)}<td style=\"{_CELL};background:"
                f'{colour(key.weight)};color:{ink}">{key.weight:.3f}</td>{_number(key.adds)}'
                + "".join(_number(v[j][d]) for d in values))
        sums = (f'<td style="{_CELL}"></td><td style="{_NAME}" colspan="3">sum (of v: weight × v)</td>'
                f'{_number(sum(key.weight for key in self.keys))}<td style="{_CELL}"></td>'
                + "".join(_number(context[d]) for d in values))
        table = "".join(f"<tr>{row}</tr>" for row in [*rows, sums])
        hidden = len(self.keys) - len(shown)
        rest = 1 - sum(self.keys[j].weight for j in shown)
        left_out = (f"<div>{hidden} more keys are left out: their weights are {max(rest, 0):.3f} together</div>"
                    if hidden else "")
        return (f'<table style="border-collapse:collapse;margin:6px 0">{table}</table>{left_out}<div>adds: the '
                "weight times the length of v W_out, which is what the key puts into the residual stream. "
                f"v[…]: of the {len(context)} numbers of v, those that the context has most of.</div>")

    def _worked(self):
        strongest = self._traced.strongest[0]
        lines = "".join(f'<tr><td style="{_NAME}">{escape(name)}</td><td style="{_NAME}">{escape(text)}</td></tr>'
                        for name, text in self._traced.worked)
        return (f"<details><summary>the strongest key by hand: {escape(short(self.tokens[self.token]))} → "
                f"{escape(short(self.tokens[strongest]))}</summary>"
                f'<table style="border-collapse:collapse">{lines}</table></details>')

    def _shares(self):
        shares = self.shares or [0.0] * len(self.head_norms)
        rows = "".join(
            f'<tr><td style="{_NAME}">{"<b>" if h == self.head else ""}head {h}{"</b>" if h == self.head else ""}'
            f'</td>{_number(norm)}{_number(share)}<td><div style="width:{round(_BAR * share)}px;height:10px;'
            f'background:#35618f"></div></td></tr>'
            for h, (norm, share) in enumerate(zip(self.head_norms, shares)))
        return (f'<div style="margin-top:8px">what each head of layer {self.layer} adds here: the length of z W_out '
                "(its context through its own columns of the output projection), and its share of the sum of these "
                f'lengths</div><table style="border-collapse:collapse">{rows}</table><div>together they add '
                f"{self.added_norm:.3f}, not {sum(self.head_norms):.3f}: heads point in different directions; "
                f"the bias adds {self.bias_norm:.3f} to every token</div>")


def _number(value):
    return f'<td style="{_CELL}">{value:.3f}</td>'


def trace(model, text, layer=0, head=0, token=None, *, batch=0, begin=True, threads=None):
    """One head of the model on a text, by hand: q · k, scale, softmax, values -> HeadTrace

    text: a str or bytes, or a list of them, which run as one padded batch; batch: the one of those to look at.
    token: the query, its index or its name; None: the last. begin: prepend the token that begins a text.
    """
    texts = [text] if isinstance(text, (str, bytes)) else list(text)
    if not texts or not 0 <= batch < len(texts):
        raise IndexError(f"trace: there is no text {batch} of {len(texts)}")
    if token is not None:
        token, _ = find_token(_cephalo._token_names(model, texts[batch], begin), token, "trace")
    return HeadTrace(_cephalo._trace_head(model, texts, layer, head, token, begin, batch, threads))
