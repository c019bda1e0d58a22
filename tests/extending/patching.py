"""Applies a patch by what its hunks say, wherever in the file that is. No tool is needed, and a hunk
that fits in no place, or in two, is an error."""

import re


def hunks_of(patch):
    """{file: [(before, after)]}, both as text."""
    files = {}
    for part in re.split(r"^diff --git ", patch, flags=re.MULTILINE)[1:]:
        head, *hunks = re.split(r"^@@.*@@\n", part, flags=re.MULTILINE)
        path = re.search(r"^\+\+\+ b/(.+)$", head, re.MULTILINE).group(1)
        files[path] = [(side(hunk, "-"), side(hunk, "+")) for hunk in hunks]
    return files


def side(hunk, sign):
    return "".join(line[1:] for line in hunk.splitlines(keepends=True) if line[0] in (" ", sign))


def apply(patch, root):
    """Changes the files under root; returns their paths."""
    for path, hunks in hunks_of(patch).items():
        text = (root / path).read_text()
        for before, after in hunks:
            places = text.count(before)
            if places != 1:
                raise ValueError(f"{path}: this fits in {places} places:\n{before}")
            text = text.replace(before, after)
        (root / path).write_text(text)
    return list(hunks_of(patch))
