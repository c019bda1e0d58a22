#!/usr/bin/env python3
"""extract_code.py FILE.md NUMBER OUT.cc: writes a ```cpp block of a document, to be compiled.

The first block is number 1.
"""

import pathlib
import re
import sys

document, number, out = sys.argv[1:]
text = pathlib.Path(document).read_text()
blocks = re.findall(r"^```cpp\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
if not 1 <= int(number) <= len(blocks):
    sys.exit(f"{document}: there are {len(blocks)} ```cpp blocks, not {number}")
pathlib.Path(out).write_text(blocks[int(number) - 1])
