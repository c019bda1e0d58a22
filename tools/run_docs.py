#!/usr/bin/env python3
"""Keeps documents honest: runs the commands in their ```console blocks.

    run_docs.py --build DIR FILE...           writes what the commands print into the files
    run_docs.py --build DIR --check FILE...   fails where a file says something else

A command is a line that begins with "$ "; what follows is its output. Times, the number of tests and
the worst elements of gradcheck are not compared.
`make demo` stands for the program it runs; of `make test` the closing line is checked.
"""

import argparse
import difflib
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
# Not compared: times and the spaces that pad them, how many tests there are today, and which element
# of a gradient happens to be the worst: that depends on last digits, and the width of its column too.
VARYING = re.compile(r" *\b\d+(\.\d+)? (ns|us|ms|s)\b *|(?<=out of )\d+$|(?<=worst) +(?=analytic)|"
                     r"\[[\d, ]+\]( +[-+.\de]+){4}$", re.MULTILINE)


def closing_line_of_tests(build):
    listing = subprocess.run(["ctest", "--test-dir", build, "-N", "-LE", "long"],
                             capture_output=True, text=True, check=True).stdout
    count = re.search(r"Total Tests: (\d+)", listing).group(1)
    return f"...\n100% tests passed, 0 tests failed out of {count}\n"


def demo_text():
    makefile = (ROOT / "Makefile").read_text()
    return re.search(r"^DEMO_TEXT := (.+)$", makefile, re.MULTILINE).group(1)


def output_of(command, build):
    words = command.split("#")[0].strip()
    if words == "make test":
        return closing_line_of_tests(build)
    if words == "make demo":
        words = f'cephalo look "{demo_text()}"'
    path = os.pathsep.join([f"{build}/cli", f"{build}/examples", f"{build}/tests",
                            os.environ["PATH"]])
    result = subprocess.run(words, shell=True, cwd=ROOT, capture_output=True, text=True,
                            env={**os.environ, "PATH": path, "LC_ALL": "C.UTF-8"})
    return result.stdout + result.stderr


def run_block(block, build):
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"{line}\n{output_of(line[2:], build)}" for line in commands)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, help="where cephalo was built")
    parser.add_argument("--check", action="store_true", help="compare, change nothing")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    build = os.path.abspath(arguments.build)
    wrong = 0
    for file in arguments.files:
        old = file.read_text()
        new = BLOCK.sub(lambda match: run_block(match.group(1), build), old)
        if not arguments.check:
            file.write_text(new)
            continue
        said, is_so = (VARYING.sub("#", text).splitlines() for text in (old, new))
        if said != is_so:
            wrong += 1
            print("\n".join(difflib.unified_diff(said, is_so, f"{file} says", "it is", lineterm="")))
    if wrong:
        print("run `make docs` and look at what changed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
