#!/usr/bin/env python3
"""extract_code.py FILE.md OUT.cc: writes the first ```cpp block of a document, to be compiled."""

import pathlib
import re
import sys

document, out = map(pathlib.Path, sys.argv[1:])
block = re.search(r"^```cpp\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)
if block is None:
    sys.exit(f"{document}: there is no ```cpp block")
out.write_text(block.group(1))
