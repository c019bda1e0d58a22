"""What bad calls get: a test for each row of the list of misuse, with the text of C++."""

import gc
import math
import weakref

import numpy as np
import pytest
from support import normal

import cephalo


def refused(error, text, call):
    with pytest.raises(error) as raised:
        call()
    assert str(raised.value) == text


def layer(**options):
    return cephalo.MultiHeadAttention(
        **{"d_in": 6, "d_out": 8, "context_length": 0, "dropout": 0.0, "num_heads": 2, "seed": 1,
           **options})


@pytest.mark.parametrize("options, text", [
    (dict(d_in=64, d_out=256, num_heads=12),
     "MultiHeadAttention: d_out (256) must be divisible by num_heads (12); 8 or 16 heads fit"),
    (dict(num_heads=0), "MultiHeadAttention: num_heads (0) must be > 0"),
    (dict(num_heads=-2), "MultiHeadAttention: num_heads (-2) must be > 0"),
    (dict(d_in=0), "MultiHeadAttention: d_in (0) must be > 0"),
    (dict(num_heads=4, num_kv_heads=3),
     "MultiHeadAttention: num_heads (4) must be a multiple of num_kv_heads (3)"),
])
def test_A1_sizes_of_a_layer(options, text):
    refused(ValueError, text, lambda: layer(**options))


@pytest.mark.parametrize("shape, text", [
    ((2, 3, 5), "MultiHeadAttention: the last dimension of x [2, 3, 5] must be d_in (6)"),
    ((2, 3, 4, 6), "MultiHeadAttention: x [2, 3, 4, 6] must be [batch, tokens, 6] or [tokens, 6]"),
    ((6,), "MultiHeadAttention: x [6] must be [batch, tokens, 6] or [tokens, 6]"),
])
def test_A2_inputs_that_do_not_fit_a_layer(shape, text):
    refused(ValueError, text, lambda: layer()(normal(*shape)))


@pytest.mark.parametrize("k, v, error, text", [
    (normal(1, 4, 3, 8), normal(2, 4, 3, 8), ValueError,
     "attend: batch of q (2), k (1) and v (2) differ"),
    (normal(2, 4, 3, 7), normal(2, 4, 3, 8), ValueError,
     "attend: head_dim of q (8) and k (7) differ: q [2, 4, 3, 8], k [2, 4, 3, 7]"),
    (normal(4, 3, 8), normal(4, 3, 8), ValueError,
     "attend: q [2, 4, 3, 8], k [4, 3, 8] and v [4, 3, 8] must have the same rank"),
    (normal(2, 4, 3, 8), normal(2, 4, 3, 8).astype(np.float16), TypeError,
     "attend: k is float32 but v is float16; they must be the same"),
    (normal(2, 4, 3, 8).astype(np.float64), normal(2, 4, 3, 8).astype(np.float64), TypeError,
     "attend: q is float32 but k and v are float64; they must be the same, or q float32 over 16-bit "
     "k and v"),
])
def test_A2_shapes_and_types_that_do_not_fit(k, v, error, text):
    refused(error, text, lambda: cephalo.attend(normal(2, 4, 3, 8), k, v))


def test_A3_more_tokens_than_context_length():
    short = layer(context_length=5)
    refused(ValueError, "MultiHeadAttention: tokens (6) exceed context_length (5)",
            lambda: short(normal(1, 6, 6)))
    assert short(normal(1, 5, 6)).shape == (1, 5, 8)  # still usable


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.1, math.nan])
def test_A4_dropout_outside_its_range(dropout):
    q = normal(3, 4)
    for call in (lambda: layer(dropout=dropout), lambda: cephalo.attend(q, q, q, dropout=dropout)):
        with pytest.raises(ValueError, match=r"dropout \(.*\) must be in \[0, 1\)"):
            call()


def test_A4_eval_ignores_dropout_exactly():
    x = normal(2, 5, 6)
    assert np.array_equal(layer(dropout=0.5).eval()(x), layer()(x))


def test_A5_empty_sequences_and_batches():
    for shape in ((2, 0), (0, 3), (0,)):
        assert layer()(np.empty((*shape, 6), np.float32)).shape == (*shape, 8)


@pytest.mark.parametrize("mask", [
    lambda: cephalo.keep(np.array([[1, 1, 1], [0, 0, 0], [1, 1, 1]], bool)),
    lambda: cephalo.bias(np.array([[0.0] * 3, [-np.inf] * 3, [0.0] * 3], np.float32)),
    lambda: cephalo.causal() & cephalo.lengths([0]),
])
def test_A6_rows_that_see_nothing(mask):
    q = normal(1, 1, 3, 4)
    r = cephalo.attend(q, q, q, mask(), return_weights=True, return_lse=True)
    assert not r.context[0, 0, 1].any() and not r.weights[0, 0, 1].any()
    g = cephalo.attend_backward(q, q, q, r.context, r.lse, np.ones_like(r.context), mask=mask())
    assert not g.dq[0, 0, 1].any() and all(np.isfinite(d).all() for d in (g.dq, g.dk, g.dv))


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_A7_nan_and_infinity_reach_only_who_attends_to_them(poison):
    q, v = normal(1, 1, 4, 4), normal(1, 1, 4, 4, seed=2)
    clean = cephalo.attend(q, q, v, cephalo.causal())
    v[0, 0, 2] = poison
    context = cephalo.attend(q, q, v, cephalo.causal())
    assert np.array_equal(context[0, 0, :2], clean[0, 0, :2])
    assert not np.isfinite(context[0, 0, 2:]).any()


def test_A8_extreme_scores():
    scores = np.array([[1e4, -1e4, 1e4], [-1e4] * 3, [-np.inf, 3, -np.inf], [1e-42, 0, -1e-42]],
                      np.float32)
    zeros = np.zeros((4, 1), np.float32)
    weights = cephalo.attend(zeros, zeros[:3], zeros[:3], cephalo.bias(scores),
                             return_weights=True).weights
    assert np.abs(weights.sum(axis=1) - 1).max() <= 1e-6
    assert weights[0, 1] == 0 and weights[2, 1] == 1


def test_A9_scores_that_no_machine_can_hold():
    many = np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (1, 1, 1 << 31, 1), (0, 0, 0, 0))
    with pytest.raises((ValueError, MemoryError), match="the reference engine stores the score of "
                                                        "every pair"):
        cephalo.attend(many, many, many, engine="reference")


@pytest.mark.parametrize("make, error, text", [
    (lambda: cephalo.keep(np.ones((2, 4, 4), bool)), ValueError,
     "attend: keep([2, 4, 4]) does not broadcast to [batch, heads, q, k] = [2, 3, 4, 4]; a mask of "
     "three dimensions is [heads, q, k]"),
    (lambda: cephalo.keep(np.ones(4, bool)), ValueError,
     "keep: shape [4] must be [q, k], [heads, q, k] or [batch, heads, q, k]"),
    (lambda: cephalo.bias(np.zeros((4, 4))), TypeError,
     "attend: bias is float64, float32 or q's float32 is needed"),
])
def test_A10_masks_that_do_not_fit(make, error, text):
    q = normal(2, 3, 4, 8)
    refused(error, text, lambda: cephalo.attend(q, q, q, make()))


def test_A11_arrays_that_lie_otherwise():
    q = normal(2, 3, 4, 8)
    expected = cephalo.attend(q, q, q)
    read_only = q.copy()
    read_only.flags.writeable = False
    for a in (q[::-1, :, :, ::-1].copy()[::-1, :, :, ::-1], np.asfortranarray(q), read_only,
              np.repeat(q, 2, axis=2)[:, :, ::2]):
        kept = a.copy()
        assert np.array_equal(cephalo.attend(a, a, a), expected) and np.array_equal(a, kept)
    for wrong in (">f4", "i4", "c8", "O"):
        with pytest.raises(TypeError, match="^attend: q is "):
            cephalo.attend(q.astype(wrong), q, q)


def test_A12_passes_that_are_stale_or_do_not_fit():
    one = layer()
    x = normal(2, 5, 6)
    y, saved = one.forward_train(x)
    with pytest.raises(ValueError, match=r"dy is"):
        one.backward(saved, y[:, :4])
    first, second = one.backward(saved, np.ones_like(y)), one.backward(saved, np.ones_like(y))
    assert np.array_equal(first.dx, second.dx)  # twice on one pass is allowed
    one.update("out_proj.bias", np.zeros(8, np.float32))
    with pytest.raises(ValueError, match="version 0 then, 1 now"):
        one.backward(saved, np.ones_like(y))


def test_A13_arrays_live_as_long_as_they_are_used():
    gone = normal(5, 6)
    mask_of = np.tril(np.ones((5, 5), bool))
    watch = weakref.ref(mask_of)
    mask = cephalo.keep(mask_of)
    with pytest.raises(ValueError, match="resize"):
        mask_of.resize(1)
    del mask_of
    gc.collect()
    assert watch() is not None and mask.draw(5, 5)  # the mask holds it
    one = layer(causal=False)
    expected = one(gone, mask=cephalo.causal())
    assert np.array_equal(one(gone, mask=mask), expected)
    parameters = one.parameters
    del one
    gc.collect()
    assert np.isfinite(parameters["W_query.weight"]).all()  # a view keeps its layer


def test_names_out_of_a_file_cannot_turn_a_traceback_round(tmp_path):
    path = tmp_path / "layer.safetensors"
    header = '{"a\u202eb":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'.encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(ValueError) as raised:
        cephalo.load(path, num_heads=1)
    assert "a?b" in str(raised.value) and "\u202e" not in str(raised.value)
    with pytest.raises(OSError, match="no\\?such"):
        cephalo.load(tmp_path / "no\u2067such", num_heads=1)
