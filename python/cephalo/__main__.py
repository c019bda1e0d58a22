"""python -m cephalo: the command line."""

import os
import pathlib
import sys


def main():
    program = pathlib.Path(__file__).parent / "bin" / "cephalo"
    os.execv(program, ["cephalo", *sys.argv[1:]])


if __name__ == "__main__":
    main()
