#!/usr/bin/env python3
"""plot.py CURVE.json OUT.svg: time and memory against tokens, as peers.py --curve measured them.

Both axes are logarithmic; every line is named at its end. A line that ends early says why.
"""

import json
import math
import pathlib
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 960, 456
PANEL_TOP, PANEL_HEIGHT, PANEL_WIDTH = 106, 276, 280
PANEL_LEFTS = (64, 540)
# Its own background, so that it reads on a white page and on a dark one. The colours differ in
# lightness too, for eyes and printers that do not tell them apart.
BACKGROUND, INK, QUIET, GRID = "#fbfaf7", "#222222", "#5f5f5f", "#e3e0d8"
COLOURS = {"cephalo": "#c2410c", "PyTorch SDPA": "#1d4ed8", "the book's class": "#6b7280"}
LABEL_GAP = 17  # pixels between the names of two lines that end together


class Axis:
    """A logarithmic scale from [low, high] to pixels [begin, end]."""

    def __init__(self, low, high, begin, end):
        self.low, self.high, self.begin, self.end = low, high, begin, end

    def __call__(self, value):
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self):
        """Powers of ten inside."""
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        return [10.0 ** power for power in range(first, last + 1)]


def text(x, y, words, size=13, colour=INK, anchor="start", bold=False):
    weight = ' font-weight="600"' if bold else ""
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
            f'text-anchor="{anchor}" paint-order="stroke" stroke="{BACKGROUND}" stroke-width="4"'
            f'{weight}>{escape(words)}</text>')


def line(x1, y1, x2, y2, colour):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def in_ms(ms):
    return f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"


def in_bytes(mega):
    return f"{mega / 1000:g} GB" if mega >= 1000 else f"{mega:g} MB"


def decades(values):
    """The powers of ten around all values; at least one."""
    low = 10.0 ** math.floor(math.log10(min(values)))
    high = 10.0 ** math.ceil(math.log10(max(values)))
    return low, max(high, 10 * low)


def spread(wanted):
    """Heights near the wanted ones, name -> y, that keep LABEL_GAP between neighbours."""
    placed, previous = {}, -math.inf
    for name, y in sorted(wanted.items(), key=lambda item: item[1]):
        previous = placed[name] = max(y, previous + LABEL_GAP)
    return placed


def grid(x, y, tokens, unit):
    parts = []
    for value in y.ticks():
        parts += [line(x.begin, y(value), x.end, y(value), GRID),
                  text(x.begin - 8, y(value) + 4, unit(value), 12, QUIET, "end")]
    for count in tokens:
        parts += [line(x(count), y.begin, x(count), y.begin + 5, QUIET),
                  text(x(count), y.begin + 20, f"{count:,}", 12, QUIET, "middle")]
    parts += [line(x.begin, y.begin, x.end, y.begin, QUIET),
              text((x.begin + x.end) / 2, y.begin + 42, "tokens", 12, QUIET, "middle")]
    return parts


def curve(points, colour):
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="2.5" '
            'stroke-linejoin="round"/>',
            *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points)]


def panel(left, title, lines, tokens, unit):
    """lines: name -> [(tokens, value)], the values in `unit`."""
    bottom = PANEL_TOP + PANEL_HEIGHT
    x = Axis(tokens[0], tokens[-1], left, left + PANEL_WIDTH)
    y = Axis(*decades([value for points in lines.values() for _, value in points]),
             bottom, PANEL_TOP)
    parts = [text(left, PANEL_TOP - 30, title, 14, bold=True), *grid(x, y, tokens, unit)]
    heights = spread({name: y(points[-1][1]) for name, points in lines.items()
                      if points[-1][0] == tokens[-1]})
    for name, points in lines.items():
        colour = COLOURS.get(name, INK)
        last_x, last_y = x(points[-1][0]), y(points[-1][1])
        parts += curve([(x(count), y(value)) for count, value in points], colour)
        if name in heights:
            parts.append(text(last_x + 9, heights[name] + 4, name, 13, colour, bold=True))
        else:  # above its end: lines rise, so there is room
            parts += [text(last_x - 12, last_y - 11, name, 13, colour, "end", bold=True),
                      text(last_x - 12, last_y + 2, "then out of memory", 11, QUIET, "end")]
    return parts


def series(points, field, scale):
    """name -> [(tokens, value)] of what was measured; a line of a log axis cannot show 0."""
    lines = {}
    for point in points:
        if point[field] is not None:
            value = max(point[field] * scale, 1e-3)
            lines.setdefault(point["library"], []).append((point["tokens"], value))
    return lines


def caption(report):
    info, versions = report["machine"], report["versions"]
    threads = f"{report['threads']} thread{'s' if report['threads'] > 1 else ''}"
    used = ", ".join(f"{name} {versions[name]}" for name in ("cephalo", "PyTorch"))
    quick = "QUICK, not a measurement: " if report["quick"] else ""
    return f"{quick}{info['model']}, {threads}, float32, {used}, {info['date']}"


def draw(report):
    points = report["points"]
    tokens = sorted({point["tokens"] for point in points})
    what = "Causal attention layer" if report["of"] == "layer" else "Causal attention"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             f'width="{WIDTH}" height="{HEIGHT}" '
             'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
             f"<title>{what}: time and memory against tokens</title>",
             f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="{BACKGROUND}"/>',
             text(64, 38, f"{what}, 12 heads of 64, one sequence", 17, bold=True),
             *panel(PANEL_LEFTS[0], "Time of a call", series(points, "ms", 1), tokens, in_ms),
             *panel(PANEL_LEFTS[1], "Memory beyond inputs and output",
                    series(points, "bytes", 1e-6), tokens, in_bytes),
             text(64, HEIGHT - 14, caption(report), 11, QUIET), "</svg>"]
    return "\n".join(parts) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.splitlines()[0])
    report = json.loads(pathlib.Path(sys.argv[1]).read_text())
    pathlib.Path(sys.argv[2]).write_text(draw(report))


if __name__ == "__main__":
    main()
