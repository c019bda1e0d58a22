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


def often(r, fitting, others):
    return fitting if r.random() < 0.8 else r.choice(others)


def tokens(r):
    """Ids as they should be, or anything else."""
    return often(r, np.ones((2, 4), np.int64), [
        np.ones((3,), np.int32), np.ones((), int), np.ones((2, 0), int), np.ones((1, 2, 3), int), array(r),
        [1, 2], [[1, 2], [3]], [-1], [9], [], "text", b"bytes", None, [None], np.arange(40)])


def floats(r, shape, dtype="f8"):
    return often(r, np.ones(shape, dtype), [array(r), array(r), None, [1.0]])


def one_call_of_a_model(r):
    gpt = cephalo.Gpt(8, often(r, 8, [1, 0]), often(r, 4, [3, 0, -4]), often(r, 2, [1, 3]), 1,
                      dropout=often(r, 0.5, [0.0, 1.0]), positions=r.choice(["learned", "rotary"]))
    row = np.ones(9, int)
    calls = [lambda: gpt(tokens(r), gpt.new_cache(often(r, 2, [0, 1, -1]))),
             lambda: gpt.train_pass(tokens(r), tokens(r)), lambda: gpt.loss(tokens(r), tokens(r)),
             lambda: gpt.generate(often(r, [1, 2], [tokens(r)]), often(r, 3, [0, 20, -1]),
                                  temperature=often(r, 1.0, [number(r)]), stop=often(r, None, [[3], [99]])),
             lambda: gpt.update("transformer.ln_f.bias", floats(r, 4, "f4")),
             lambda: cephalo.Recording(gpt, tokens(r)).weights(often(r, 0, [number(r)]),
                                                               heads=[often(r, 1, [-1, 9])]),
             lambda: cephalo.Windows(tokens(r), often(r, 3, [number(r)]), stride=r.choice([0, 1, -1]),
                                     batch=often(r, 1, [number(r)]))[0],
             lambda: cephalo.Trainer(gpt, lambda n: often(r, row, [tokens(r)]),
                                     batch=often(r, 2, [0, -1, None, 3])).step(),
             lambda: cephalo.cross_entropy(floats(r, (4, 8)), often(r, [1, 2, 3, 4], [tokens(r)]),
                                           floats(r, (4, 8))),
             lambda: cephalo.adamw_step(floats(r, 3), floats(r, 3), cephalo.AdamWState(),
                                        learning_rate=often(r, 0.1, [number(r)])),
             lambda: cephalo.clip_gradient_norm([floats(r, 3), floats(r, (2, 2))], often(r, 1, [number(r)])),
             lambda: cephalo.head_metrics(floats(r, (5, 11))),
             lambda: cephalo.value_weighted(floats(r, (2, 3, 4)), floats(r, (2, 4))),
             lambda: cephalo.jensen_shannon(floats(r, 4), floats(r, 4)),
             lambda: cephalo.Embedding(often(r, 3, [0, -1]), 4)(tokens(r)),
             lambda: cephalo.sample_token(floats(r, 4), generator=cephalo.TorchGenerator(0))]
    return r.choice(calls)()


def test_three_thousand_random_calls_of_models_leave_the_interpreter_alive():
    r = random.Random(2)
    worked = 0
    for _ in range(3_000):
        try:
            one_call_of_a_model(r)
            worked += 1
        except (*EXPECTED, IndexError) as error:
            assert str(error)
    assert 300 < worked < 2_700


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
