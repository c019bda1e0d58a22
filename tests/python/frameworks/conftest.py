"""Where tests find the book's classes (tests/golden) and the small GPT (here)."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "golden")]
