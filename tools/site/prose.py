"""Comments and docstrings as Markdown. They are plain text, whose lines may name arguments."""

import html
import re

SPAN = re.compile(r"(`[^`]+`)")
SHAPE = re.compile(r"\[[a-z0-9_|×·+ ,.…-]+\]")
WRAPPED = 88  # a line that would have had room for the next word was ended on purpose
ARGUMENT = re.compile(r"[a-z_][\w.]*(?:(?:, | and )[a-z_][\w.]*)*(?: \([^)]*\))?: ")


def inline(text, links):
    """Plain text -> one line of Markdown; shapes become code, names of `links` become links."""
    parts = []
    for part in SPAN.split(text):
        if part.startswith("`") and len(part) > 1:
            parts.append(linked(part, part.strip("`"), links))
            continue
        shapes = SHAPE.findall(part)
        pieces = [words(piece, links) for piece in SHAPE.split(part)]
        woven = [piece for pair in zip(pieces, [*(f"`{s}`" for s in shapes), ""]) for piece in pair]
        parts.append("".join(woven))
    return "".join(parts)


def words(text, links):
    text = re.sub(r"([\\*_\[\]#|])", r"\\\1", html.escape(text, quote=False))
    return re.sub(r"\b[A-Z]\w+\b", lambda m: linked(m.group(), m.group(), links), text)


def linked(shown, name, links):
    return f"[{shown}]({links[name]})" if name in links else shown


def begins_anew(line, before):
    """Does a line stay a line of its own, or was it only wrapped?"""
    room = WRAPPED - len(before) - 1
    return bool(ARGUMENT.match(line)) or line.startswith("->") or len(line.split()[0]) <= room


def markdown(lines, links=None):
    """Lines of a comment -> Markdown: paragraphs, in which arguments have their own lines."""
    paragraphs, current, before = [], [], ""
    for line in [*lines, ""]:
        line = line.strip()
        if not line:
            if current:
                paragraphs.append("  \n".join(inline(text, links or {}) for text in current))
            current = []
        elif not current or begins_anew(line, before):
            current.append(line)
        else:
            current[-1] += " " + line
        before = line
    return "\n\n".join(paragraphs)
