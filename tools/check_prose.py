#!/usr/bin/env python3
"""Spelling and style of documents, by codespell and proselint: check_prose.py FILE...

Only prose is looked at: no code, no headings.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/docs"))
from documents import text_of, without_code  # noqa: E402

HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
# Straight quotes are what people type; "multiply-add" has no adverb in it.
IGNORED = (": typography.", ": misc.phrasal_adjectives.")


def run(*command):
    result = subprocess.run([sys.executable, "-m", *map(str, command)], capture_output=True, text=True)
    return (result.stdout + result.stderr).strip()


def main():
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder)
        for name in sys.argv[1:]:
            path = base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            prose = HEADING.sub(".", without_code(text_of(ROOT / name)))
            path.with_suffix(".md").write_text(prose, encoding="utf-8")
        files = sorted(base.rglob("*.md"))
        said = run("codespell_lib", *files) + "\n" + run("proselint", "check", *files)
        said = said.replace(f"{base.resolve()}/", "")
    found = "\n".join(line for line in said.splitlines()
                      if line and not any(check in line for check in IGNORED))
    print(found or f"{len(sys.argv) - 1} documents: no findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
