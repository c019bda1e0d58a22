#!/usr/bin/env python3
"""Writes cephalo/text/unicode_classes.cc: which code points are letters and which are numbers.

    pip install tokenizers && tools/make_unicode_classes.py

The classes are those by which the tokenizers package splits text for GPT-2: it is asked about every
code point, so ours agree with it, whatever Unicode this machine's other libraries have.
"""

import pathlib

import tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[1]
PRE_SPLIT = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)


def class_of(character):
    """A character that stays in one piece with a letter is a letter, and so on."""
    for name, neighbour in (("letter", "a"), ("number", "1"), ("other", "!")):
        if len(PRE_SPLIT.pre_tokenize_str(neighbour + character)) == 1:
            return name
    return "space"


def classes():
    """name -> [first, last] of each run of code points."""
    runs, before = {}, None
    for code in range(0x110000):
        surrogate = 0xD800 <= code <= 0xDFFF
        name = "other" if surrogate else class_of(chr(code))
        if name == before:
            runs[name][-1][1] = code
        else:
            runs.setdefault(name, []).append([code, code])
        before = name
    return runs


def array(name, runs):
    cells = [f"{{0x{first:X}, 0x{last:X}}}" for first, last in runs]
    lines, line = [], "   "
    for cell in cells:
        if len(line) + len(cell) + 2 > 100:
            lines.append(line)
            line = "   "
        line += f" {cell},"
    lines.append(line.rstrip(","))
    body = "\n".join(lines)
    return f"const CodePoints k{name}[{len(runs)}] = {{\n{body}}};\n"


def main():
    found = classes()
    spaces = ", ".join(f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in found["space"])
    text = f"""// Made by tools/make_unicode_classes.py, from tokenizers {tokenizers.__version__}.
#include "cephalo/text/unicode_classes.h"

namespace cephalo {{

// clang-format off
// White space, which pre_split.cc has as code: {spaces}
{array("Letters", found["letter"])}
{array("Numbers", found["number"])}
// clang-format on

}}  // namespace cephalo
"""
    (ROOT / "cephalo/text/unicode_classes.cc").write_text(text)
    print({name: sum(b - a + 1 for a, b in runs) for name, runs in found.items()},
          {name: len(runs) for name, runs in found.items()})


if __name__ == "__main__":
    main()
