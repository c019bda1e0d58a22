"""layer.look and the notebook view of a trace."""

import os
import subprocess
import sys
from xml.etree import ElementTree

import cephalo
import numpy as np
import pages
import pytest

WORDS = ["Your", "journey", "starts", "with", "<script>alert(1)</script>", '" onload="x & y']


def causal_layer(**options):
    return cephalo.MultiHeadAttention(8, 8, 512, 0.0, 2, seed=123, **options)


def inputs(*shape):
    return cephalo.TorchGenerator(1).randn(shape)


def drawn(look):
    """[heads, rows, columns] with NaN where hidden"""
    return np.array(look.heads, dtype=float)


def test_every_weight_is_drawn_and_the_hidden_ones_are_not():
    layer, x = causal_layer(), inputs(2, 6, 8)
    look = layer.look(x, WORDS, batch=1)
    weights = layer.trace(x)["weights"][1]
    hidden = np.triu(np.ones((6, 6), dtype=bool), 1)
    assert (np.isnan(drawn(look)) == hidden).all()
    assert (np.nan_to_num(drawn(look)) == weights).all()
    page = pages.self_contained(look._repr_html_())
    titles = [text for text in page.texts if "→" in text and ": " in text]
    assert len(titles) == 2 * 21  # two heads, 6 * 7 / 2 visible pairs
    assert f"journey → Your: {weights[1, 1, 0]:.4f}" in titles


def test_tokens_are_text_and_never_markup():
    html = causal_layer().look(inputs(1, 6, 8), WORDS)._repr_html_()
    page = pages.self_contained(html)
    assert "<script" not in html and 'onload="' not in html
    assert "<script>alert(1)</script> → Your" in " ".join(page.texts)


def test_all_heads_share_one_scale_and_it_says_what_rows_and_columns_are():
    html = causal_layer().look(inputs(1, 6, 8))._repr_html_()
    page = pages.self_contained(html)
    assert page.tags.count("svg") == 3  # one legend, two heads
    assert html.count("row = query, looks at → column = key") == 3
    assert html.count('fill="#ffea46"') == 3  # weight 1: the legend's end and each first row


def test_colours_are_those_of_pictures_and_terminals():
    html = causal_layer().look(inputs(1, 6, 8))._repr_html_()
    assert 'y="2" width="12" height="12" fill="#00204d"/>' in html  # the legend's 0: dark blue
    assert cephalo._cephalo.cividis(0) == (0, 32, 77) and cephalo._cephalo.cividis(1) == (255, 234, 70)
    assert "dark blue is 0, yellow is 1, hatched is hidden" in html


def test_a_page_is_saved_whole(tmp_path):
    look = causal_layer().look(inputs(1, 6, 8), WORDS)
    look.save(tmp_path / "heads.html")
    text = (tmp_path / "heads.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and look._repr_html_() in text
    with pytest.raises(AssertionError):
        pages.Page(text.replace("</svg>", "", 1))
    pages.self_contained(text.removeprefix("<!DOCTYPE html>\n"))


def test_the_terminal_shows_shades():
    look = causal_layer().look(inputs(1, 4, 8), ["a", "b", "c", "line\nbreak"])
    lines = repr(look).splitlines()
    assert lines.count("head 0") == lines.count("head 1") == 1
    assert lines[2] == "· 0  ░ 0.05  ▒ 0.25  ▓ 0.5  █ 0.75  blank: hidden"
    assert lines[4] == "           a |██      |"
    assert len(lines) == 3 + 2 * 5 and "line␣break" in lines[7]


def test_shades_are_those_of_the_program():
    hidden = float("-inf")
    bias = np.array([[0, hidden, hidden], [0, 20, hidden], [0, 1.5, 20]], np.float32)
    layer = cephalo.MultiHeadAttention(8, 8, 512, 0.0, 1, causal=False, seed=1)
    layer.update("W_query.weight", np.zeros((8, 8), np.float32))  # the bias alone decides
    lines = repr(layer.look(inputs(3, 8), mask=cephalo.bias(bias))).splitlines()
    assert [line[-7:] for line in lines[4:]] == ["|██    |"[-7:], "|··██  |"[-7:], "|····██|"[-7:]]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("tokens", [65, 300])
def test_above_64_tokens_it_pools_and_says_so(tokens, causal):
    layer, x = causal_layer(causal=causal), inputs(2, tokens, 8)
    look = layer.look(x, batch=1)
    assert f"{tokens} × {tokens} tokens pooled into 64 × 64 cells" in repr(look)
    pages.self_contained(look._repr_html_())
    edges = [-(-cell * tokens // 64) for cell in range(65)]
    weights = layer.trace(x)["weights"][1]
    largest = np.maximum.reduceat(np.maximum.reduceat(weights, edges[:-1], 1), edges[:-1], 2)
    hidden = np.triu(np.ones((64, 64), dtype=bool), 1) & causal
    assert (np.isnan(drawn(look)) == hidden).all()
    assert np.abs(np.nan_to_num(drawn(look)) - largest).max() < 2e-6
    assert f"{edges[9]}–{edges[10] - 1}" in repr(look) or tokens == 65


@pytest.mark.parametrize("layer", [
    cephalo.SelfAttention(8, 4, seed=1),
    cephalo.CausalAttention(8, 4, 100, 0.0, seed=1),
    cephalo.HeadWrapper(8, 4, 100, 0.0, 2, seed=1),
    cephalo.EasyMultiHeadAttention(8, 2, seed=1),
    cephalo.FastMultiHeadAttention(8, 2, seed=1),
    causal_layer(rotary=True),
    causal_layer(num_kv_heads=1),
    causal_layer(dtype="float64"),
], ids=lambda layer: repr(layer))
@pytest.mark.parametrize("tokens", [5, 70])
def test_every_rung_can_be_looked_into(layer, tokens):
    x = inputs(tokens, 8).astype(layer.dtype)
    look, batched = layer.look(x), layer.look(x[None])
    assert len(look.heads) == layer.num_heads and look.heads == batched.heads
    rows = np.nansum(drawn(look), axis=2)
    assert (rows > 0).all() and (tokens > 64 or np.abs(rows - 1).max() < 1e-5)


def test_keys_from_elsewhere_have_their_own_names():
    layer = cephalo.MultiHeadAttention(8, 8, 100, 0.0, 2, d_kv=4, causal=False, seed=1)
    look = layer.look(inputs(3, 8), ["a", "b", "c"], kv=inputs(2, 4), kv_tokens=["k", "l"])
    assert drawn(look).shape == (2, 3, 2) and "c → l" in look._repr_html_()
    pooled = layer.look(inputs(3, 8), kv=inputs(90, 4))
    assert pooled.pooled and drawn(pooled).shape == (2, 3, 64)


def test_a_mask_hides_more():
    look = causal_layer().look(inputs(6, 8), mask=cephalo.window(1, 0))
    assert np.isnan(drawn(look)[0]).sum() == 36 - 11


def test_no_numpy_array_is_needed():
    x = inputs(1, 70, 8)
    plain = memoryview(np.ascontiguousarray(x))
    assert causal_layer().look(plain).heads == causal_layer().look(x).heads


@pytest.mark.parametrize("tokens", [6, 70])
def test_looking_is_no_call_and_sees_weights_before_dropout(tokens):
    looked, other = (cephalo.MultiHeadAttention(8, 8, 100, 0.5, 2, seed=1) for _ in range(2))
    x = inputs(1, tokens, 8)
    before = looked.look(x).heads
    assert looked.training and (looked(x) == other(x)).all()  # the same call number drops the same
    assert before == looked.eval().look(x).heads
    drawing = cephalo.MultiHeadAttention(8, 8, 100, 0.5, 2, seed=1, dropout_stream="torch")
    assert drawing.look(x).heads == before


GROWTH = """
import resource
import cephalo

layer = cephalo.MultiHeadAttention(32, 32, 2048, 0.0, 4, seed=1, rotary=True)
x = cephalo.TorchGenerator(1).randn((2048, 32))
layer.look(x[:128])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert len(layer.look(x).heads[3]) == 64
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_of_a_long_look_is_linear_also_with_rotary_positions():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True,
                          env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 16 * 1024  # KiB: one head's matrix of weights alone is as much


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="look: tokens has 1 names, the input has 6 tokens"):
        causal_layer().look(inputs(6, 8), ["a"])
    with pytest.raises(ValueError, match=r"context_length \(512\)"):
        causal_layer().look(inputs(513, 8))


def test_a_trace_is_a_dict_that_knows_its_steps():
    trace = causal_layer().trace(inputs(2, 6, 8))
    assert isinstance(trace, dict) and list(trace) == [step.key for step in trace.steps]
    assert trace["output"] is trace.steps[-1].value
    heads = next(step for step in trace.steps if step.key == "q_heads")
    assert (heads.number, heads.name, heads.shape) == ("3", "TRANSPOSE", (2, 2, 6, 4))
    assert heads.strides == (48, 4, 8, 1) and not heads.moved
    assert "3  TRANSPOSE   q_heads" in repr(trace)


def test_a_notebook_shows_every_step_of_a_trace(tmp_path):
    trace = causal_layer().trace(inputs(2, 6, 8))
    page = pages.self_contained(trace._repr_html_())
    text = " ".join(page.texts)
    for step in trace.steps:
        assert step.key in page.texts and step.formula in page.texts
        assert f"shape {step.shape} · strides {step.strides}" in text
    assert "strides (48, 4, 8, 1) · same memory · new strides" in text
    assert "new memory" in text and f"{trace['weights'][0, 0, 1, 0]:.4f}" in text
    assert page.tags.count("table") == len(trace.steps)
    trace.save(tmp_path / "trace.html")
    assert trace._repr_html_() in (tmp_path / "trace.html").read_text(encoding="utf-8")


def test_a_trace_draws_how_its_width_is_split(tmp_path):
    trace = causal_layer().trace(inputs(2, 6, 8))
    picture = trace.picture(["The", "<cat>", "s\x1bat"])
    assert repr(picture).startswith("8 = 2 heads x 4\n")
    assert "(2, 2, 6, 4) @ (2, 2, 4, 6) = (2, 2, 6, 6)" in repr(picture)
    assert "\x1b" not in repr(picture)
    page = pages.self_contained(picture._repr_html_())
    assert "<cat>" in page.texts and page.tags[0] == "svg"
    assert "8 = 2 heads x 4" in pages.self_contained(trace._repr_html_()).texts
    picture.save(tmp_path / "split.svg")
    root = ElementTree.parse(tmp_path / "split.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    for other in (cephalo.HeadWrapper(8, 4, 100, 0.0, 2, seed=1).trace(inputs(6, 8)),
                  cephalo.trace_simple_attention(inputs(3, 4))):
        assert "svg" not in pages.self_contained(other._repr_html_()).tags
        with pytest.raises(ValueError, match="picture: nothing is split into heads"):
            other.picture()


@pytest.mark.parametrize("trace", [
    cephalo.trace_simple_attention(inputs(3, 4)),
    cephalo.SelfAttention(8, 4, seed=1).trace(inputs(3, 8)),
    causal_layer().trace(inputs(20, 8)),
], ids=["rung 1", "rung 2", "no batch"])
def test_traces_of_any_rank_show_themselves(trace):
    pages.self_contained(trace._repr_html_())
