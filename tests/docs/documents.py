"""The documents of the tree, and the prose in them."""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?:    .*\n|\n(?=    ))+")
CODE = re.compile(r"(?P<ticks>`+)(?:(?!(?P=ticks)).)+(?P=ticks)", re.DOTALL)


def markdown_files():
    """Everything in Markdown, wherever it is, but what was built."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *ROOT.glob("models/*/*.md")]
    return sorted(p for p in found if p.relative_to(ROOT).parts[0] not in ("build", ".venv"))


def notebooks():
    return sorted(ROOT.glob("docs/*.ipynb"))


def text_of(path):
    """Markdown as it is; of a notebook the cells that are Markdown."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def without_code(text):
    """Prose alone: blocks and spans of code are blanked out, lines stay where they are."""
    for pattern in (FENCE, INDENTED, CODE):
        text = pattern.sub(lambda match: "\n" * match.group().count("\n") or "`code`", text)
    return text
