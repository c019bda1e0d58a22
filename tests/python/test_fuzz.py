"""Ten thousand random calls: a result or a named error, never a dead interpreter."""

import random

import numpy as np

import cephalo

EXPECTED = (ValueError, TypeError, MemoryError, OverflowError)
DTYPES = ["f4", "f4", "f4", "f8", "f2", "i4", "?", ">f4", "c8", "O"]


def array(r):
    shape = [r.choice([0, 1, 1, 2, 3, 4, 8]) for _ in range(r.choice([0, 1, 2, 3, 3, 4, 4, 4, 5, 9]))]
    a = np.ones(shape, r.choice(DTYPES))
    if a.ndim and r.random() < 0.2:
        a = a[..., ::-1]
    if a.ndim > 1 and r.random() < 0.2:
        a = np.swapaxes(a, 0, -1)
    return a


def fitting(r):
    heads, tokens, dim = r.choice([1, 2, 4]), r.choice([0, 1, 3, 5]), r.choice([1, 4])
    dtype = r.choice(["f4", "f4", "f8", "f2"])
    return [np.ones((2, heads, tokens, dim), dtype) for _ in range(3)]


def number(r):
    return r.choice([0, 1, 2, 3, -1, 7, 1 << 31, 1 << 62, 1 << 70, 0.5, float("nan"), None, "x"])


def mask(r):
    if r.random() < 0.5:
        return r.choice([None, cephalo.causal(), cephalo.causal() & cephalo.window(2, 0)])
    parts = [lambda: cephalo.causal(number(r)), lambda: cephalo.causal(),
             lambda: cephalo.window(number(r), number(r)), lambda: cephalo.keep(array(r)),
             lambda: cephalo.drop(array(r)), lambda: cephalo.bias(array(r)),
             lambda: cephalo.lengths([number(r), number(r)]), lambda: cephalo.documents(array(r)),
             lambda: cephalo.alibi([number(r), 1.0]), lambda: cephalo.positions("top_left", number(r)),
             lambda: array(r), lambda: None, lambda: cephalo.keep(np.ones((1, 1, 1, 1), bool))]
    joined = r.choice(parts)()
    for _ in range(r.choice([0, 0, 1, 2])):
        joined = joined & r.choice(parts)()
    return joined


def options(r):
    given = {}
    for name in ("scale", "softcap", "dropout", "seed", "threads"):
        if r.random() < 0.15:
            given[name] = number(r)
    for name in ("return_lse", "return_weights"):
        if r.random() < 0.3:
            given[name] = r.choice([True, False, 3])
    if r.random() < 0.2:
        given["engine"] = r.choice(["auto", "reference", "fused", "none", None])
    if r.random() < 0.2:
        given["return_scores"] = r.choice(["scaled", "masked", "x", 1])
    if r.random() < 0.2:
        given["out"] = array(r)
    return given


def one_call(r):
    inputs = fitting(r) if r.random() < 0.7 else [array(r) for _ in range(3)]
    kind = r.random()
    if kind < 0.6:
        return cephalo.attend(*inputs, mask=mask(r), **options(r))
    if kind < 0.7:
        return cephalo.plan(*inputs, mask=mask(r))
    if kind < 0.8:
        return cephalo.weights(*inputs[:2], array(r), mask=mask(r), heads=[r.choice([0, 1, -1, 99])])
    if kind < 0.9:
        layer = cephalo.MultiHeadAttention(*(r.choice([0, 2, 4, 8, -1]) for _ in range(2)),
                                           r.choice([0, 4, -1]), r.choice([0.0, 0.5, 1.0, -1.0]),
                                           r.choice([0, 1, 2, 3]), rotary=r.choice([None, True]))
        return layer(array(r), mask=mask(r))
    cache = cephalo.KVCache.growing(r.choice([0, 1, 2]), r.choice([0, 1, 2]), head_dim=r.choice([0, 1, 4]))
    cache.append(array(r), array(r))
    return cephalo.attend(inputs[0], cache, mask=mask(r))


def test_ten_thousand_random_calls_leave_the_interpreter_alive():
    r = random.Random(1)
    worked = 0
    for _ in range(10_000):
        try:
            one_call(r)
            worked += 1
        except EXPECTED as error:
            assert str(error)
    assert 1_000 < worked < 9_000
