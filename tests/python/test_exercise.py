"""cephalo.check knows the right answers of the exercise and names the wrong ones."""

import re

import cephalo
import numpy as np
import pages
import pytest

E = cephalo.exercise()
FUTURE = np.triu(np.ones((E.tokens, E.tokens), dtype=bool), 1)


def softmax(a, axis=-1):
    powers = np.exp(a - a.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def split(a):
    return a.reshape(E.batch, E.tokens, E.num_heads, E.head_dim)


def heads(a):
    return split(a).transpose(0, 2, 1, 3)


Q, K, V = (E.x @ w.T for w in (E.W_query, E.W_key, E.W_value))
SCORES = heads(Q) @ heads(K).swapaxes(2, 3)
MASKED = np.where(FUTURE, -np.inf, SCORES)
SCALED = MASKED / np.sqrt(E.head_dim)
WEIGHTS = softmax(SCALED)
VALUES = WEIGHTS @ heads(V)
CONTEXT = VALUES.transpose(0, 2, 1, 3).reshape(E.batch, E.tokens, E.d_out)
OUTPUT = CONTEXT @ E.out_weight.T + E.out_bias
RIGHT = {"project": Q, "split": split(Q), "transpose": heads(Q), "scores": SCORES, "mask": MASKED,
         "softmax": WEIGHTS, "values": VALUES, "concat": CONTEXT, "output": OUTPUT}
UNMASKED = softmax(SCORES / np.sqrt(E.head_dim))

WRONG = [
    ("project", K, "this is k"),
    ("project", E.x, r"axis 2 \(d_out\) is 6, it should be 12"),
    ("split", heads(Q), r"yours is \[batch, num_heads, tokens, head_dim\]"),
    ("split", Q.reshape(2, 5, 4, 3), r"axis 2 \(num_heads\) is 4, it should be 3"),
    ("split", Q, 'this is the answer of the step "project"; now view q'),
    ("split", Q[0], r"2 axes, \(5, 12\); it should have 4, \[batch, tokens, num_heads, head_dim\]"),
    ("transpose", Q.reshape(2, 3, 5, 4), "heads are mixed up: .* without moving an axis"),
    ("transpose", split(Q), r"yours is \[batch, tokens, num_heads, head_dim\]"),
    ("scores", SCORES.swapaxes(2, 3), r"yours is \[batch, num_heads, kv_tokens, q_tokens\]"),
    ("scores", SCORES / 2, "scaled already"),
    ("mask", SCORES, "nothing is hidden yet"),
    ("mask", np.where(FUTURE.T, -np.inf, SCORES), "the past is hidden"),
    ("mask", np.where(FUTURE, 0, SCORES), "hidden scores are 0"),
    ("softmax", softmax(MASKED), "the scale was forgotten"),
    ("softmax", softmax(SCALED, axis=2), r"wrong axis: axis 2 \(q_tokens\)"),
    ("softmax", UNMASKED, "the mask was not applied"),
    ("softmax", np.where(FUTURE, 0, UNMASKED), "the mask was applied after softmax"),
    ("values", WEIGHTS @ heads(K), "multiplied with k"),
    ("values", WEIGHTS.swapaxes(2, 3) @ heads(V), "the weights are transposed"),
    ("concat", VALUES.reshape(E.batch, E.tokens, E.d_out), "heads are mixed up: .*contiguous"),
    ("concat", VALUES, 'this is the answer of the step "values"; now transpose back'),
    ("output", CONTEXT, "out_proj was not applied"),
    ("output", OUTPUT - E.out_bias, "the bias is missing"),
    ("output", CONTEXT @ E.out_weight + E.out_bias, "out_weight is transposed"),
    ("output", OUTPUT + 1, r"the numbers are not: at \[batch, tokens, d_out\] = \(0, 0, 0\)"),
]


@pytest.mark.parametrize("step", RIGHT)
def test_the_right_answer_is_right(step):
    for dtype in (np.float32, np.float64):
        verdict = cephalo.check(step, RIGHT[step].astype(dtype))
        assert verdict and verdict.right and f"{step}: right" in repr(verdict)


@pytest.mark.parametrize("step, answer, words", WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_a_wrong_answer_is_named(step, answer, words):
    verdict = cephalo.check(step, answer)
    assert not verdict
    assert re.search(words, verdict.text), verdict.text


def test_every_step_has_a_wrong_answer_above():
    assert {step for step, _, _ in WRONG} == set(RIGHT)


@pytest.mark.parametrize("gap", [None, ...])
def test_a_gap_is_told_what_to_do(gap):
    verdict = cephalo.check("split", gap)
    assert not verdict and verdict.text.startswith("split: to do: ")


def test_the_layer_gives_the_same_numbers():
    layer = cephalo.MultiHeadAttention(E.d_in, E.d_out, E.tokens, 0.0, E.num_heads, seed=E.seed)
    assert np.abs(layer(E.x) - OUTPUT).max() < 1e-6


def test_an_unknown_step_and_no_array_are_refused():
    with pytest.raises(ValueError, match="there is no step \"attend\"; the steps are project"):
        cephalo.check("attend", Q)
    with pytest.raises(TypeError, match="check"):
        cephalo.check("split", "abc")


def test_hints_go_further_each_time_and_then_name_the_solution():
    cephalo.exercise()  # and the first hints again
    first, second, third, again = (cephalo.hint("mask") for _ in range(4))
    assert [hint.number for hint in (first, second, third, again)] == [1, 2, 3, 3]
    assert len({first.text, second.text, third.text}) == 3
    assert "cephalo.solution" not in repr(second) and "cephalo.solution" in repr(third)
    assert cephalo.hint("mask", 1).text == first.text
    assert cephalo.hint("mask").text == second.text  # a hint by its number is where the next one begins
    with pytest.raises(IndexError, match="mask has hints 1 to 3, not 4"):
        cephalo.hint("mask", 4)


def test_solutions_are_right_when_they_are_run():
    names = {"e": E, "np": np, "future": FUTURE, "softmax": softmax}
    for step in RIGHT:
        solution = cephalo.solution(step)
        exec(solution.code, names)
        made = names[solution.code.split(" = ")[0] if step != "concat" else "context"]
        assert cephalo.check(step, made), step
        assert np.allclose(made, solution.array, atol=1e-5), step
        assert str(solution.array.shape) in repr(solution)


def test_a_solution_shows_itself_as_a_page():
    page = pages.self_contained(cephalo.solution("softmax")._repr_html_())
    assert "weights = softmax(masked / np.sqrt(e.head_dim))" in page.texts


def test_hints_and_solutions_of_an_unknown_step_are_refused():
    for help_with in (cephalo.hint, cephalo.solution):
        with pytest.raises(ValueError, match="there is no step \"attend\"; the steps are project"):
            help_with("attend")
