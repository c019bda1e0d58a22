#!/usr/bin/env python3
"""Runs notebooks without Jupyter: run_notebooks.py [--check] NOTEBOOK...

Each code cell is executed in turn, what it prints and shows is stored in the notebook; with --check
it is compared instead. Cells tagged "pytorch" are run, but what they print depends on the machine.
"""

import argparse
import ast
import contextlib
import io
import json
import pathlib
import re
import sys

# Differences that are nothing but rounding are other ones on other machines.
ROUNDING = re.compile(r"\b\d(\.\d+)?e-(0[6-9]|[1-9]\d)\b|\b0\.0e\+00\b")


def lines(text):
    return text.splitlines(keepends=True)


def execute(source, namespace):
    """Runs a cell -> what it printed, and the value of its last line if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), namespace)
        value = None if last is None else eval(
            compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
    return printed.getvalue(), value


def outputs_of(source, namespace, count):
    """What Jupyter would store under the cell."""
    printed, value = execute(source, namespace)
    outputs = []
    if printed:
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines(printed)})
    if value is not None:
        data = {"text/plain": lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = lines(value._repr_html_())
        outputs.append({"data": data, "execution_count": count, "metadata": {},
                        "output_type": "execute_result"})
    return outputs


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(notebook):
    """The notebook's JSON -> for each code cell its outputs."""
    namespace = {"__name__": "__main__"}
    return [outputs_of("".join(cell["source"]), namespace, count)
            for count, cell in enumerate(code_cells(notebook), start=1)]


def comparable(outputs):
    return ROUNDING.sub("rounding", json.dumps(outputs, ensure_ascii=False, sort_keys=True))


def differing(notebook):
    """The sources of cells whose stored outputs are not what running gives."""
    return ["".join(cell["source"])
            for cell, outputs in zip(code_cells(notebook), run(notebook))
            if "pytorch" not in cell["metadata"].get("tags", [])
            and comparable(cell["outputs"]) != comparable(outputs)]


def store(path, notebook):
    for count, (cell, outputs) in enumerate(zip(code_cells(notebook), run(notebook)), start=1):
        cell["execution_count"] = count
        cell["outputs"] = outputs
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("notebooks", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    stale = 0
    for path in arguments.notebooks:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        if not arguments.check:
            store(path, notebook)
            continue
        for source in differing(notebook):
            stale += 1
            print(f"{path}: running gives something else:\n{source}\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
