"""What the notebook views share: escaping, the colours of weights, the page around a fragment."""

import html
import pathlib

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


def save_page(path, title, fragment):
    """One file that a browser opens without anything else."""
    page = (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
            f"</title></head>\n<body>{fragment}</body></html>\n")
    pathlib.Path(path).write_text(page, encoding="utf-8")
