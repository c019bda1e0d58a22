"""What the notebook views share: escaping, the colours of weights, the page around a fragment."""

import html
import pathlib

from . import _cephalo

CAPTION = "row = query, looks at → column = key"
HATCH = "#aaa"  # the strokes of what is hidden
STYLE = "background:#fff;color:#222;font:13px sans-serif;padding:8px"

def escape(text):
    """For text and for attributes in double quotes."""
    return html.escape(str(text), quote=True)


def colour(weight):
    """A weight from 0 to 1 -> "#rrggbb": the same colour as in a PNG and on a terminal."""
    return "#%02x%02x%02x" % _cephalo.cividis(weight)


def short(name):
    """A token in one line of at most 12 letters."""
    name = "".join(letter if letter.isprintable() else "␣" for letter in name)
    return name if len(name) <= 12 else name[:11] + "…"


def legend():
    """What the colours of weights mean."""
    steps = "".join(f'<rect x="{18 + 12 * n}" y="2" width="12" height="12" fill="{colour(n / 10)}"/>'
                    for n in range(11))
    return ('<svg role="img" aria-label="colours: dark blue is 0, yellow is 1, hatched is hidden" '
            'width="270" height="18"><g font-size="11" font-family="monospace" fill="#222">'
            f'<text x="4" y="12">0</text>{steps}<rect x="18" y="2" width="132" height="12" fill="none" '
            f'stroke="#888"/><text x="154" y="12">1</text><path stroke="{HATCH}" d="M176 14l12 -12M182 14'
            'l6 -6M176 8l6 -6"/><rect x="176" y="2" width="12" height="12" fill="none" stroke="#888"/>'
            '<text x="194" y="12">hidden</text></g></svg>')


def caption(queries, keys, rows, columns):
    """What rows and columns are, and that they stand for more than one token where they do."""
    if (rows, columns) == (queries, keys):
        return CAPTION
    return (f"{CAPTION}; {queries} × {keys} tokens pooled into {rows} × {columns} cells, each the "
            "largest weight in it")


def save_page(path, title, fragment):
    """One file that a browser opens without anything else."""
    page = (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
            f"</title></head>\n<body>{fragment}</body></html>\n")
    pathlib.Path(path).write_text(page, encoding="utf-8")
