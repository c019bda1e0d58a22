"""Where tests find the book's classes (tests/golden) and the small GPT (here), and what PyTorch may use."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "golden")]

# Where a virtual machine names AMX and does not have it, PyTorch's own 16-bit Linear ends the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
