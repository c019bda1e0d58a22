"""cephalo.page(text): one HTML file in which to see every head, and a notebook's frame around it."""

import pathlib

from ._html import escape
from ._look_text import look

_SHOWN = 4_000_000  # bytes of a page that a notebook takes in: it keeps them


class Page:
    """A page of one text; shows itself in a notebook.

    text: what it is of. html: the whole file. tokens: how many it shows.
    """

    def __init__(self, text, html, tokens):
        self.text = text
        self.html = html
        self.tokens = tokens

    def save(self, path):
        """Writes the page, which needs nothing else: open it in a browser."""
        pathlib.Path(path).write_text(self.html, encoding="utf-8")

    def __repr__(self):
        return f"<cephalo.Page of {self.tokens} tokens, {len(self.html) / 1e6:.1f} MB>"

    def _repr_html_(self):
        if len(self.html) > _SHOWN:
            return (f"<p>This page has {len(self.html) / 1e6:.1f} MB: write it with <code>save(path)</code>, "
                    "and open it in a browser.</p>")
        # Its scripts run in a frame that can neither read nor change the notebook; exports and the
        # printer's dialog are allowed.
        return (f'<iframe sandbox="allow-scripts allow-downloads allow-modals" width="100%" height="800" style="border:0" '
                f'title="{escape(f"What every head looks at: {self.text[:80]}")}" '
                f'srcdoc="{escape(self.html)}"></iframe>')


def page(text, model=None, path=None, *, begin=True, most_bytes=64_000_000, heads=()):
    """A page that shows what every head of a model looks at in a text -> Page

    The page is recorded: it keeps this text and works without the model, the network and Python. In a notebook it
    shows itself; path: where to write it, too. `cephalo page` also writes live ones, to type into.

    model: a Gpt with a tokenizer, the folder of one, or None for the built-in model. begin: prepend the token that
    begins a text. most_bytes: of a page with every head in full; above it these heads, each (layer, head), are
    kept in full, and of the others the map and the 8 strongest keys of every token.
    """
    if not isinstance(text, (str, bytes)):
        raise TypeError("page: text must be str or bytes")
    seen = look(text, model, begin=begin)
    made = Page(seen.text, seen.report.page(most_bytes, list(heads)), len(seen.tokens))
    if path is not None:
        made.save(path)
    return made
