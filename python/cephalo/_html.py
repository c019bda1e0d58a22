"""What the notebook views share: escaping, the colours of weights, the page around a fragment."""

import html
import pathlib

CAPTION = "row = query, looks at → column = key"
STYLE = "background:#fff;color:#222;font:13px sans-serif;padding:8px"

# Cividis from its bright end, which all kinds of colour vision tell apart; 0 melts into the page.
_STOPS = ((0.0, (255, 255, 255)), (0.12, (254, 232, 56)), (0.23, (225, 204, 85)),
          (0.34, (195, 179, 105)), (0.45, (165, 156, 116)), (0.56, (138, 134, 120)),
          (0.67, (112, 113, 115)), (0.78, (87, 93, 109)), (0.89, (59, 73, 108)),
          (1.0, (0, 34, 78)))


def escape(text):
    """For text and for attributes in double quotes."""
    return html.escape(str(text), quote=True)


def colour(weight):
    """A weight from 0 to 1 -> "#rrggbb"."""
    weight = min(max(weight, 0.0), 1.0)
    for (low, dark), (high, light) in zip(_STOPS, _STOPS[1:]):
        if weight <= high:
            part = (weight - low) / (high - low)
            return "#%02x%02x%02x" % tuple(round(a + part * (b - a)) for a, b in zip(dark, light))
    return "#ffffff"  # NaN: never part of a row of weights


def short(name):
    """A token in one line of at most 12 letters."""
    name = "".join(letter if letter.isprintable() else "␣" for letter in name)
    return name if len(name) <= 12 else name[:11] + "…"


def legend():
    """What the colours of weights mean."""
    steps = "".join(f'<rect x="{18 + 12 * n}" y="2" width="12" height="12" fill="{colour(n / 10)}"/>'
                    for n in range(11))
    return ('<svg role="img" aria-label="colours: white is 0, dark blue is 1, hatched is hidden" '
            'width="270" height="18"><g font-size="11" font-family="monospace" fill="#222">'
            f'<text x="4" y="12">0</text>{steps}<rect x="18" y="2" width="132" height="12" fill="none" '
            'stroke="#888"/><text x="154" y="12">1</text><path stroke="#ccc" d="M176 14l12 -12M182 14l6 -6'
            'M176 8l6 -6"/><rect x="176" y="2" width="12" height="12" fill="none" stroke="#888"/>'
            '<text x="194" y="12">hidden</text></g></svg>')


def save_page(path, title, fragment):
    """One file that a browser opens without anything else."""
    page = (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
            f"</title></head>\n<body>{fragment}</body></html>\n")
    pathlib.Path(path).write_text(page, encoding="utf-8")
