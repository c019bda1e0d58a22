#!/usr/bin/env python3
"""Cuts the font of the pictures out of DejaVu Sans Mono: Latin, Greek, Cyrillic, punctuation.

    python3 -m venv .venv && .venv/bin/pip install fonttools
    .venv/bin/python tools/make_font.py            writes cephalo/view/fonts/DejaVuSansMono.ttf

The font is Debian's (fonts-dejavu-core, version 2.37). Hints and layout tables go: pictures are drawn
with stb_truetype, which reads neither. The same input gives the same bytes.
"""

import pathlib
import sys

from fontTools import subset
from fontTools.ttLib import TTFont

SOURCE = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf"
TARGET = pathlib.Path(__file__).resolve().parents[1] / "cephalo/view/fonts/DejaVuSansMono.ttf"
MOST_BYTES = 150_000  # the library carries it
RANGES = [
    (0x0020, 0x007E), (0x00A0, 0x024F), (0x1E00, 0x1EFF),  # Latin
    (0x0370, 0x03FF), (0x0400, 0x052F),                    # Greek, Cyrillic
    (0x2010, 0x2027), (0x2030, 0x203A), (0x20AC, 0x20AC),  # dashes, quotes, dots, the euro
    (0x2190, 0x2193), (0x2212, 0x2212), (0x2248, 0x2248), (0x2264, 0x2265), (0x2423, 0x2423),
]
NAMES = [0, 1, 2, 4, 5, 6, 13, 14]  # the licence among them


def main():
    font = TTFont(sys.argv[1] if len(sys.argv) > 1 else SOURCE, recalcTimestamp=False)
    options = subset.Options(hinting=False, layout_features=[], glyph_names=False, notdef_outline=True,
                             name_IDs=NAMES)
    options.drop_tables += ["GSUB", "GPOS", "GDEF", "FFTM", "kern", "gasp"]
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=[code for first, last in RANGES for code in range(first, last + 1)])
    cutter.subset(font)
    font.save(TARGET)
    size = TARGET.stat().st_size
    print(f"{TARGET.name}: {len(font.getBestCmap())} characters, {size} bytes")
    return 0 if size <= MOST_BYTES else f"more than {MOST_BYTES} bytes"


if __name__ == "__main__":
    sys.exit(main())
