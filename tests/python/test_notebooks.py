"""The notebooks run, say what they say, and the exercise can be solved."""

import copy
import importlib.util
import json
import pathlib
import re

import pages
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs").glob("*.ipynb"))
GAP = re.compile(r"^(\w+) = \.\.\.$", re.MULTILINE)
SOLUTIONS = {
    "q": "e.x @ e.W_query.T",
    "k": "e.x @ e.W_key.T",
    "v": "e.x @ e.W_value.T",
    "q_split": "q.reshape(e.batch, e.tokens, e.num_heads, e.head_dim)",
    "k_split": "k.reshape(e.batch, e.tokens, e.num_heads, e.head_dim)",
    "v_split": "v.reshape(e.batch, e.tokens, e.num_heads, e.head_dim)",
    "q_heads": "q_split.transpose(0, 2, 1, 3)",
    "k_heads": "k_split.transpose(0, 2, 1, 3)",
    "v_heads": "v_split.transpose(0, 2, 1, 3)",
    "scores": "q_heads @ k_heads.swapaxes(2, 3)",
    "masked": "np.where(future, -np.inf, scores)",
    "weights": "softmax(masked / np.sqrt(e.head_dim))",
    "context_heads": "weights @ v_heads",
    "context": "context_heads.transpose(0, 2, 1, 3).reshape(e.batch, e.tokens, e.d_out)",
    "output": "context @ e.out_weight.T + e.out_bias",
}


def runner():
    spec = importlib.util.spec_from_file_location("run_notebooks", ROOT / "tools/run_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def notebook(path):
    return json.loads(path.read_text(encoding="utf-8"))


def sources(cells):
    return ["".join(cell["source"]) for cell in cells]


def filled(**others):
    """docs/exercise.ipynb with its gaps filled, some of them with something else."""
    answers = SOLUTIONS | others
    solved = copy.deepcopy(notebook(ROOT / "docs/exercise.ipynb"))
    gaps = []
    for cell in solved["cells"]:
        source = "".join(cell["source"])
        gaps += GAP.findall(source)
        cell["source"] = [GAP.sub(lambda gap: f"{gap[1]} = {answers[gap[1]]}", source)]
    assert gaps == list(SOLUTIONS)
    return solved


def printed(outputs):
    return "".join("".join(output.get("text", [])) for cell in outputs for output in cell)


def test_there_are_notebooks():
    assert {path.stem for path in NOTEBOOKS} >= {"exercise", "induction_circuit", "side_by_side",
                                                  "which_head"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_stores_what_running_it_gives(path):
    assert runner().differing(notebook(path)) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebooks_cells_are_short_and_what_it_shows_needs_no_network(path):
    for cell in notebook(path)["cells"]:
        assert len(cell["source"]) <= 10, cell["source"]
        for output in cell.get("outputs", []):
            pages.self_contained("".join(output.get("data", {}).get("text/html", [])))


def test_a_stale_output_is_found():
    stale = notebook(ROOT / "docs/exercise.ipynb")
    cell = next(cell for cell in stale["cells"] if cell.get("outputs"))
    cell["outputs"][0]["text"] = ["something else"]
    assert runner().differing(stale) == sources([cell])


def test_the_exercise_can_be_solved():
    said = printed(runner().run(filled()))
    assert said.count(": right, ") == 9 and "That was the last step." in said


def test_a_slip_in_the_exercise_is_named():
    said = printed(runner().run(filled(weights="softmax(masked)")))
    assert "softmax: the scale was forgotten" in said
    assert "values: the weights were made without the scale" in said
