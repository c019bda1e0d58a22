#!/usr/bin/env python3
"""extract_code.py FILE.md NUMBER OUT: writes a block of code of a document, to be compiled or run.

OUT.cc is a ```cpp block, OUT.py a ```python block; the first of its language is number 1.
"""

import pathlib
import re
import sys

document, number, out = sys.argv[1:]
text = pathlib.Path(document).read_text()
language = "python" if out.endswith(".py") else "cpp"
blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
if not 1 <= int(number) <= len(blocks):
    sys.exit(f"{document}: there are {len(blocks)} ```{language} blocks, not {number}")
pathlib.Path(out).write_text(blocks[int(number) - 1])
