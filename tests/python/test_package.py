"""The package itself: version, imports, stubs, command line."""

import array
import os
import pathlib
import re
import subprocess
import sys

import pytest

import cephalo

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = pathlib.Path(cephalo.__file__).parent


def run(*arguments, **options):
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env,
                          **options)


def test_the_version_is_that_of_cmake():
    text = (ROOT / "CMakeLists.txt").read_text()
    assert cephalo.__version__ == re.search(r"project\(cephalo VERSION ([\d.]+)", text).group(1)


def test_importing_needs_no_numpy_and_brings_none():
    result = run("-c", "import cephalo, sys; print('numpy' in sys.modules, 'torch' in sys.modules)")
    assert result.stdout == "False False\n", result.stderr


def test_without_numpy_results_are_arrays_of_cephalo():
    script = """
import sys; sys.modules["numpy"] = None
import cephalo
x = cephalo.TorchGenerator(0).randn((2, 3, 8))
layer = cephalo.MultiHeadAttention(8, 8, 4, 0.0, 2, seed=123)
y = layer(x)
print(type(y).__name__, y.shape, y.dtype, memoryview(y).shape, y[0][1].tolist() == y.tolist()[0][1])
print(type(layer.parameters["out_proj.bias"]).__name__, memoryview(layer.parameters["out_proj.bias"]).readonly)
"""
    result = run("-c", script)
    assert result.stdout == "Array (2, 3, 8) float32 (2, 3, 8) True\nArray True\n", result.stderr


def test_without_numpy_models_train_and_write():
    script = """
import sys; sys.modules["numpy"] = None
import array, cephalo
gpt = cephalo.Gpt(300, 8, 8, 2, 1, seed=1)
windows = cephalo.Windows(list(range(40)), 8, batch=2)
inputs, targets = windows[0]
loss, gradients = gpt.train_pass(inputs, targets)
gpt.update_all(lambda name, p: cephalo.sgd_step(p, gradients[name], learning_rate=0.1))
print(type(inputs).__name__, inputs.tolist()[1], gpt.loss(inputs, targets) < loss)
print(gpt(array.array("q", [1, 2])).shape, len(gpt.generate([1], 3).ids))
recording = cephalo.Recording(gpt, [1, 2, 3])
print(type(recording.weights(0)).__name__, cephalo.pipeline("a b", d_in=4, d_out=4, num_heads=1).ids.tolist())
"""
    result = run("-c", script)
    assert result.stdout == ("Array [8, 9, 10, 11, 12, 13, 14, 15] True\n(2, 300) 3\nArray [[0, 1]]\n"), \
        result.stderr


def test_buffers_of_the_standard_library_are_arrays():
    numbers = memoryview(array.array("f", range(12))).cast("B").cast("f", shape=(3, 4))
    context = cephalo.attend(numbers, numbers, numbers)
    assert isinstance(context, cephalo.Array) and context.shape == (3, 4)
    assert memoryview(context).tolist() == context.tolist()


def test_every_public_name_has_a_docstring_and_a_stub():
    stub = (PACKAGE / "_cephalo.pyi").read_text()
    for name in cephalo.__all__:
        thing = getattr(cephalo, name)
        if type(thing).__module__ == "builtins" or name in dir(cephalo._results):
            continue
        assert thing.__doc__, name
        assert re.search(rf"^(def|class) {name}\b|^{name}\b", stub, re.MULTILINE), name
    assert (PACKAGE / "py.typed").exists()
    assert "std::" not in stub  # a type that Python cannot be given


SUBINTERPRETER = """
import sys
import cephalo
import numpy as np
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
if sys.argv[1] == "used":
    cephalo.attend(np.eye(3), np.eye(3), np.eye(3))
second = interpreters.create()
interpreters.run_string(second, f'''
import sys
sys.path[:] = {sys.path!r}
try:
    import cephalo
except ImportError as error:
    print(error, flush=True)
''')
interpreters.destroy(second)
print(cephalo.attend(np.eye(3), np.eye(3), np.eye(3)).shape, cephalo.causal())
"""


@pytest.mark.parametrize("first", ["used", "only imported"])
def test_a_subinterpreter_is_refused_and_leaves_the_first_alone(first):
    result = run("-c", SUBINTERPRETER, first)
    assert result.returncode == 0, result.stderr
    refusal = ("cephalo works in the main interpreter only, not in a subinterpreter"
               if sys.version_info < (3, 12)
               else "module cephalo._cephalo does not support loading in subinterpreters")  # Python's own
    assert result.stdout == f"{refusal}\n(3, 3) causal()\n"


def test_python_m_cephalo_is_the_command_line():
    assert run("-m", "cephalo", "--version").stdout == f"cephalo {cephalo.__version__}\n"
    wrong = run("-m", "cephalo", "trase")
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: unknown command 'trase'")
