"""Models with cephalo's attention exported to ONNX: onnxruntime gives cephalo's numbers."""

import io
import logging
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.export import Dim

import cephalo
import cephalo.torch as ct
from cephalo.torch import attend, scaled_dot_product_attention

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.filterwarnings("ignore")


class Model(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *tensors):
        return self.f(*tensors)


def exported(model, tensors, **options):
    """-> the names of its operators, and a function that runs it"""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    file = io.BytesIO()
    program = torch.onnx.export(model.eval(), tensors, dynamo=True, verbose=False, **options)
    program.save(file)
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(file.getvalue(), settings, providers=["CPUExecutionProvider"])

    def run(*tensors):
        named = {given.name: t.numpy() for given, t in zip(session.get_inputs(), tensors)}
        return [torch.from_numpy(t) for t in session.run(None, named)]

    return {node.op_type for node in program.model.graph}, run


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def inputs(q_tokens=5, kv_tokens=7, kv_heads=4, v_dim=8):
    return (torch.randn(2, 4, q_tokens, 8), torch.randn(2, kv_heads, kv_tokens, 8),
            torch.randn(2, kv_heads, kv_tokens, v_dim))


def some_visible(*shape):
    visible = torch.rand(*shape) < 0.6
    visible[..., 1, :] = False  # a row without keys
    return visible


def hiding_bias():
    bias = torch.randn(1, 4, 5, 7)
    bias[0, 0, 2] = -torch.inf
    return bias


IDS = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, -1, -1]])
# The function, its tensors, and whether opset 23 has one operator for it.
CASES = {
    "plain": (scaled_dot_product_attention, inputs(), True),
    "values of another width": (scaled_dot_product_attention, inputs(v_dim=6), True),
    "top-left causal": (lambda *t: scaled_dot_product_attention(*t, is_causal=True), inputs(), True),
    "scale": (lambda *t: scaled_dot_product_attention(*t, scale=0.3), inputs(), True),
    "scale 0": (lambda *t: scaled_dot_product_attention(*t, scale=0.0), inputs(), True),
    "scale below 0": (lambda *t: scaled_dot_product_attention(*t, scale=-0.5), inputs(), True),
    "shared heads": (lambda *t: scaled_dot_product_attention(*t, enable_gqa=True), inputs(kv_heads=2), True),
    "bool": (scaled_dot_product_attention, (*inputs(), some_visible(2, 1, 5, 7)), True),
    "bool of keys": (scaled_dot_product_attention, (*inputs(), torch.rand(2, 1, 1, 7) < 0.6), True),
    "bias": (scaled_dot_product_attention, (*inputs(), hiding_bias()), True),
    "two dimensions": (scaled_dot_product_attention, tuple(t[0, 0] for t in inputs()), True),
    "bottom-right causal": (lambda *t: attend(*t, ct.causal()), inputs(), True),
    "bottom-right causal, square": (lambda *t: attend(*t, ct.causal()), inputs(5, 5), True),
    "bottom-right causal, empty rows": (lambda *t: attend(*t, ct.causal()), inputs(7, 5), True),
    "prefix": (lambda *t: attend(*t, ct.causal(3)), inputs(), True),
    "a prefix for each": (lambda *t: attend(*t[:3], ct.causal(t[3])), (*inputs(), torch.tensor([3, 0])), True),
    "window": (lambda *t: attend(*t, ct.window(2, 1)), inputs(), True),
    "half a window": (lambda *t: attend(*t, ct.window(cephalo.unlimited, 1)), inputs(), True),
    "offset": (lambda *t: attend(*t, ct.positions("top_left", 1) & ct.causal()), inputs(), True),
    "lengths": (lambda *t: attend(*t[:3], ct.lengths(*t[3:])),
                (*inputs(), torch.tensor([7, 0]), torch.tensor([2, 5])), True),
    "documents": (lambda *t: attend(*t[:3], ct.documents(t[3]) & ct.causal()), (*inputs(5, 5), IDS), True),
    "keep and drop": (lambda *t: attend(*t[:3], ct.keep(t[3]) & ct.drop(t[4])),
                      (*inputs(), some_visible(5, 7), torch.rand(4, 1, 7) < 0.3), True),
    "ALiBi": (lambda *t: attend(*t, ct.alibi([0.5, 0.25, 0.125, 0.0]) & ct.causal()), inputs(), True),
    "ALiBi of a tensor": (lambda *t: attend(*t[:3], ct.alibi(t[3]) & ct.bias(t[4])),
                          (*inputs(), torch.tensor([0.5, 0.25, 0.125, 0.0]), hiding_bias()), True),
    "softcap": (lambda *t: attend(*t, softcap=0.7), inputs(), False),
    "softcap and causal": (lambda *t: attend(*t, ct.causal(), softcap=0.7), inputs(kv_heads=2), False),
    "softcap and a bias": (lambda *t: attend(*t[:3], ct.bias(t[3]), softcap=0.7), (*inputs(), hiding_bias()),
                           False),
    "weights": (lambda *t: attend(*t, ct.causal(), return_weights=True, heads=[2, 0], rows=[3])[2], inputs(7, 5),
                False),
    "all weights": (lambda *t: attend(*t, softcap=0.7, return_weights=True)[0:3:2], inputs(kv_heads=2), False),
    "lse": (lambda *t: attend(*t, ct.causal(), return_lse=True)[:2], inputs(7, 5), False),
}


@pytest.mark.parametrize("case", CASES)
def test_onnxruntime_gives_the_same_numbers(case):
    f, tensors, has_operator = CASES[case]
    operators, run = exported(Model(f), tensors, opset_version=23)
    assert ("Attention" in operators) == has_operator
    expected = f(*tensors)
    for ours, theirs in zip([expected] if torch.is_tensor(expected) else expected, run(*tensors), strict=True):
        torch.testing.assert_close(theirs, ours, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("opset", [18, None])
def test_earlier_opsets_get_plain_operators(opset):
    f, tensors = CASES["bool"][0], CASES["bool"][1]
    operators, run = exported(Model(f), tensors, **({} if opset is None else {"opset_version": opset}))
    assert "Attention" not in operators and "Softmax" in operators
    torch.testing.assert_close(run(*tensors)[0], f(*tensors), atol=2e-6, rtol=1e-5)


def test_lengths_may_be_dynamic():
    f = CASES["bottom-right causal"][0]
    q_tokens, kv_tokens = Dim("q_tokens", min=2, max=64), Dim("kv_tokens", min=2, max=64)
    _, run = exported(Model(f), inputs(), opset_version=23,
                      dynamic_shapes=(({2: q_tokens}, {2: kv_tokens}, {2: kv_tokens}),))
    for sizes in ((5, 7), (9, 4), (3, 30)):
        tensors = inputs(*sizes)
        torch.testing.assert_close(run(*tensors)[0], f(*tensors), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("opset", [20, 23])
def test_the_layer_is_exported(opset):
    layer = ct.MultiHeadAttention(12, 8, 16, 0.1, 2)
    shapes = ({0: Dim("batch", max=8), 1: Dim("tokens", max=16)},)
    operators, run = exported(layer, (torch.randn(2, 5, 12),), opset_version=opset, dynamic_shapes=shapes)
    assert ("Attention" in operators) == (opset == 23)
    x = torch.randn(3, 11, 12)
    torch.testing.assert_close(run(x)[0], layer(x), atol=2e-6, rtol=1e-5)


def test_the_older_exporter_gets_plain_operators():
    f, tensors = CASES["top-left causal"][0], CASES["top-left causal"][1]
    file = io.BytesIO()
    torch.onnx.export(Model(f), tensors, file, dynamo=False, opset_version=18)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    named = {given.name: t.numpy() for given, t in zip(session.get_inputs(), tensors)}
    torch.testing.assert_close(torch.from_numpy(session.run(None, named)[0]), f(*tensors), atol=2e-6, rtol=1e-5)


def row_sums(*tensors):
    found = attend(*tensors, return_lse=True)
    return ct.row_sums(*tensors[:2], found.lse)


@pytest.mark.parametrize("f, text", [
    (lambda *t: scaled_dot_product_attention(*t, dropout_p=0.1), "attention has dropout .0.1.*call eval"),
    (row_sums, "row_sums has no operators in ONNX"),
])
def test_what_a_model_cannot_do_is_refused_by_name(f, text):
    with pytest.raises(Exception, match=text):
        exported(Model(f), inputs(), opset_version=23)


def test_a_call_outside_of_export_loads_nothing():
    script = ("import sys, torch, cephalo.torch as ct; q = torch.randn(1, 1, 2, 4); "
              "ct.scaled_dot_product_attention(q, q, q); "
              "torch.export.export(torch.nn.Sequential(ct.MultiHeadAttention(4, 4, 4, 0.0, 2)), (q[0],)); "
              "print('cephalo.torch.onnx' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"
