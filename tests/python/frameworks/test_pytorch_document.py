"""docs/pytorch.md: its blocks run one after the other, and print what it says they print."""

import contextlib
import io
import pathlib
import re

DOCUMENT = pathlib.Path(__file__).resolve().parents[3] / "docs/pytorch.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def test_the_document_is_right():
    blocks = BLOCK.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert len(blocks) == 5
    names = {}
    for code, said in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(DOCUMENT), "exec"), names)
        assert printed.getvalue().strip() == said.strip()
