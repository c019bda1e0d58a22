"""cephalo.effects(text), ablate, lens, patch: what parts of a model do, as values that show themselves."""

import json
import os

from . import _cephalo
from ._html import STYLE, escape, save_page
from ._look_text import _builtin

_OF_FILES = ' xmlns="http://www.w3.org/2000/svg"'  # a page knows what svg is, and names no address


class Report:
    """What an experiment found; shows itself as a picture or as text.

    report["heads"] ...: the fields of its JSON, which docs/schema describes.
    """

    def __init__(self, page):
        self._page = page
        self._fields = json.loads(page.json)

    def __getitem__(self, field):
        return self._fields[field]

    def keys(self):
        return self._fields.keys()

    def json(self):
        """One line, as the program's --json prints it."""
        return self._page.json

    def picture(self):
        """A Picture of it, to save as PNG or SVG."""
        return self._page.picture()

    def save(self, path):
        """Writes one HTML page that needs nothing else."""
        save_page(path, self["schema"], self._repr_html_())

    def __repr__(self):
        return self._page.text()

    def _repr_html_(self):
        drawn = self.picture().svg().replace(_OF_FILES, "", 1)
        return (f'<div style="{STYLE}">{drawn}<details><summary>as text</summary>'
                f"<pre>{escape(self)}</pre></details></div>")


def _model(model):
    if model is None:
        return _builtin()[0]
    return _cephalo.Gpt.load(model) if isinstance(model, (str, os.PathLike)) else model


def _factor(factor, kind, function):
    if factor is None and kind == "scale":
        raise ValueError(f"{function}: scale needs its factor, as factor=0.5")
    return 1.0 if factor is None else factor


def effects(text, model=None, *, kind="zero", factor=None, reference="", pairs=False, edges=None, edge_kind="hide",
            begin=True, progress=None):
    """What each head does to the token that the model predicts after a text: each is changed in turn -> Report

    model: a Gpt with a tokenizer, the folder of one, or None for the built-in model. kind: zero, mean,
    reference-mean (over the text `reference`), uniform, no-first or scale (by factor). pairs: every two heads
    together, too. edges: a token's index; each key that it sees is hidden in turn instead (edge_kind: hide or cut).
    progress(done, all): called as experiments end; if it returns False, what is done is returned.
    """
    return Report(_cephalo.effects_report(_model(model), text, kind=kind, factor=_factor(factor, kind, "effects"),
                                          reference=reference, pairs=pairs, edges=edges, edge_kind=edge_kind,
                                          begin=begin, progress=progress))


def ablate(text, changes, model=None, *, kind="zero", factor=None, reference="", begin=True):
    """What the model says with and without some parts: "L3H2,L2H6", "L1.mlp", "L3H2:12>4" ... -> Report"""
    return Report(_cephalo.ablation_report(_model(model), text, changes, kind=kind,
                                           factor=_factor(factor, kind, "ablate"), reference=reference,
                                           begin=begin))


def lens(text, model=None, *, norm="fresh", top=5, begin=True):
    """What the model would say after each layer -> Report

    norm: fresh (the last norm, of each residual), frozen (with the last one's scale) or none.
    """
    return Report(_cephalo.lens_report(_model(model), text, norm=norm, top=top, begin=begin))


def patch(clean, corrupt, answer, wrong, model=None, *, begin=True, progress=None):
    """Which parts of a clean text's run bring its answer back into a corrupt one -> Report

    answer, wrong: one token each, with its space: " Mary", " John". Both texts have as many tokens.
    """
    return Report(_cephalo.patch_report(_model(model), clean, corrupt, answer, wrong, begin=begin,
                                        progress=progress))
