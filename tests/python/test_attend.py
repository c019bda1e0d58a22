"""attend, its masks, and what explains or reverses it."""

import numpy as np
import pytest
from support import attention, causal

import cephalo


def normal(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.fixture
def qkv():
    return normal(2, 4, 7, 8), normal(2, 2, 11, 8, seed=1), normal(2, 2, 11, 5, seed=2)


def shared(k):
    return np.repeat(k, 2, axis=1)


@pytest.mark.parametrize("engine", ["auto", "reference", "fused"])
def test_attend_is_the_formula_for_grouped_heads(qkv, engine):
    q, k, v = qkv
    context, weights = attention(q, shared(k), shared(v), causal(7, 11))
    result = cephalo.attend(q, k, v, cephalo.causal(), return_weights=True, return_lse=True,
                            return_scores="scaled", engine=engine)
    assert type(result).__name__ == "AttendResult"
    assert np.abs(result.context - context).max() <= 1e-12
    assert np.abs(result.weights - weights).max() <= 1e-12
    assert result.lse.shape == (2, 4, 7) and result.scores.shape == (2, 4, 7, 11)


def test_only_what_was_asked_for_is_there(qkv):
    assert isinstance(cephalo.attend(*qkv), np.ndarray)
    result = cephalo.attend(*qkv, return_lse=True)
    assert result.lse is not None and result.weights is None and result.scores is None


def test_ranks_2_and_3_give_the_same_rank(qkv):
    q, k, v = qkv
    assert cephalo.attend(q[0], k[0], v[0]).shape == (4, 7, 5)
    assert cephalo.attend(q[0, 0], k[0, 0], v[0, 0]).shape == (7, 5)


def test_masks_join_and_print_and_draw():
    mask = cephalo.causal() & cephalo.window(2, 0)
    assert repr(mask) == "causal() & window(2, 0)"
    assert "# # # ." in mask.draw(4, 4)
    assert repr(cephalo.positions("top_left", 1)) == 'positions(top_left, 1)'
    with pytest.raises(ValueError, match="align is \"left\""):
        cephalo.positions("left")


VISIBLE = {
    "causal()": (lambda: cephalo.causal(), lambda i, j, b: j <= i),
    "causal(3)": (lambda: cephalo.causal(3), lambda i, j, b: (j <= i) | (j < 3)),
    "causal([3, 0])": (lambda: cephalo.causal([3, 0]), lambda i, j, b: (j <= i) | (j < [3, 0][b])),
    "window": (lambda: cephalo.window(2, 1), lambda i, j, b: (i - 2 <= j) & (j <= i + 1)),
    "unlimited": (lambda: cephalo.window(cephalo.unlimited, 0), lambda i, j, b: j <= i),
    "top_left": (lambda: cephalo.positions("top_left") & cephalo.causal(), lambda i, j, b: j <= i),
    "lengths": (lambda: cephalo.lengths(np.array([4, 6])), lambda i, j, b: (j < [4, 6][b]) & (i >= 0)),
    "lengths of q": (lambda: cephalo.lengths([4, 6], q=[6, 2]),
                     lambda i, j, b: (j < [4, 6][b]) & (i < [6, 2][b])),
    "documents": (lambda: cephalo.documents(np.array([0, 0, 1, 1, 1, 2])),
                  lambda i, j, b: np.array([0, 0, 1, 1, 1, 2])[i] == np.array([0, 0, 1, 1, 1, 2])[j]),
}


@pytest.mark.parametrize("part", VISIBLE)
def test_each_part_hides_what_it_says(part):
    make, see = VISIBLE[part]
    q = normal(2, 1, 6, 4)
    i, j = np.ogrid[:6, :6]
    visible = np.stack([np.broadcast_to(see(i, j, b), (6, 6)) for b in range(2)])[:, None]
    expected, _ = attention(q, q, q, visible)
    assert np.abs(cephalo.attend(q, q, q, mask=make()) - expected).max() <= 1e-12


def test_biases_add():
    q, bias = normal(2, 4, 6, 8), normal(4, 6, 6, seed=3)
    slopes = cephalo.alibi_slopes(4)
    distance = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    expected, _ = attention(q, q, q, bias=bias - np.array(slopes)[:, None, None] * distance)
    mask = cephalo.bias(bias) & cephalo.alibi(slopes)
    assert np.abs(cephalo.attend(q, q, q, mask=mask) - expected).max() <= 1e-12


def test_a_query_that_sees_nothing_gives_zero():
    q = normal(3, 4)
    result = cephalo.attend(q, q, q, mask=cephalo.keep(np.zeros((3, 3), bool)), return_lse=True)
    assert not result.context.any() and np.isneginf(result.lse).all()


@pytest.mark.parametrize("mask", [
    cephalo.causal(), cephalo.causal([2, 0]), cephalo.window(3, cephalo.unlimited),
    cephalo.positions("top_left", -1) & cephalo.lengths([4, 5], [1, 2]),
    cephalo.causal(2) & cephalo.alibi(cephalo.alibi_slopes(12)),
], ids=repr)
def test_what_a_mask_prints_is_that_mask(mask):
    assert repr(cephalo.Mask.parse(repr(mask))) == repr(mask)


def test_masks_are_read_with_their_arrays():
    ids = np.array([0, 0, 1])
    mask = cephalo.Mask.parse("causal() & documents('ids') & bias('b')",
                              {"ids": ids, "b": np.zeros((3, 3), np.float32)})
    same = cephalo.causal() & cephalo.documents(ids) & cephalo.bias(np.zeros((3, 3), np.float32))
    assert mask.draw(3, 3) == same.draw(3, 3)
    assert repr(cephalo.Mask.parse("none")) == "none"
    with pytest.raises(KeyError, match="nowhere"):
        cephalo.Mask.parse("keep('nowhere')")
    with pytest.raises(ValueError, match="^mask: expected '&' or the end at character 10 of"):
        cephalo.Mask.parse("causal() causal()")


def test_a_bare_array_is_no_mask(qkv):
    with pytest.raises(TypeError, match="attend: mask is an ndarray.*keep"):
        cephalo.attend(*qkv, mask=np.ones((7, 11), bool))


ERRORS = [
    (dict(dropout=1.0), ValueError, r"dropout \(1\) must be in \[0, 1\)"),
    (dict(dropout=float("nan")), ValueError, "dropout"),
    (dict(softcap=-1.0), ValueError, "softcap"),
    (dict(engine="fast"), ValueError, 'engine is "fast"; it must be one of "auto", "reference", "fused"'),
    (dict(require="auto"), ValueError, 'require is "auto"'),
    (dict(return_scores="raw"), ValueError, 'return_scores is "raw"'),
    (dict(threads=-1), ValueError, "threads"),
    (dict(seed=-1), TypeError, "seed"),
]


@pytest.mark.parametrize("arguments, error, text", ERRORS)
def test_wrong_arguments_are_named(qkv, arguments, error, text):
    with pytest.raises(error, match=text):
        cephalo.attend(*qkv, **arguments)


def test_shapes_and_types_that_do_not_fit_are_named(qkv):
    q, k, v = qkv
    with pytest.raises(ValueError, match=r"\[2, 2, 11, 7\]"):
        cephalo.attend(q, k[..., :7], v)
    with pytest.raises(TypeError, match="float32.*float64|float64.*float32"):
        cephalo.attend(q, k.astype(np.float32), v)
    with pytest.raises(ValueError, match="keep"):
        cephalo.attend(q, k, v, mask=cephalo.keep(np.ones((7, 10), bool)))
    with pytest.raises(TypeError, match="v is missing"):
        cephalo.attend(q, k)


def test_work_beyond_memory_is_an_error_before_it_begins():
    one = np.zeros((1, 1), np.float32)
    q = np.broadcast_to(one, (1 << 20, 1 << 20, 1 << 20, 1))
    with pytest.raises((ValueError, MemoryError)):
        cephalo.attend(q, q, q)


def test_plan_says_what_will_run(qkv):
    plan = cephalo.plan(*qkv, mask=cephalo.causal())
    assert plan.engine == "fused" and plan.isa == cephalo.isa() and plan.flops > 0
    assert "fused engine" in repr(plan) and plan.refused == []


def test_weights_are_had_again_from_lse(qkv):
    q, k, v = qkv
    mask = cephalo.causal()
    result = cephalo.attend(q, k, v, mask, return_lse=True, return_weights=True)
    rows = cephalo.weights(q, k, result.lse, mask, heads=[1, 3], rows=[0, 6])
    assert np.abs(rows - result.weights[:, [1, 3]][:, :, [0, 6]]).max() <= 2e-6
    pooled = cephalo.pooled_weights(q, k, result.lse, 3, head=1, mask=mask)
    assert pooled.largest.shape == (3, 3) and pooled.largest.max() <= 1.0
    sums = cephalo.row_sums(q, k, result.lse, mask=mask)
    assert sums.shape == (2, 4, 7, len(cephalo.ROW_SUMS))
    assert np.abs(sums[..., cephalo.ROW_SUMS.index("largest")] - result.weights.max(-1)).max() <= 2e-6


def test_backward_agrees_with_differences(qkv):
    bias = normal(7, 11, seed=4)
    mask = cephalo.causal() & cephalo.bias(bias)
    assert cephalo.gradcheck(*qkv, mask=mask, softcap=5.0, projections=3)
    result = cephalo.attend(*qkv, mask, return_lse=True)
    back = normal(*result.context.shape, seed=5)
    d = cephalo.attend_backward(*qkv, result.context, result.lse, back, mask=mask, with_dbias=True)
    assert [g.shape for g in d[:3]] == [a.shape for a in qkv]
    step = 1e-6 * normal(7, 11, seed=6)
    ahead, behind = (cephalo.attend(*qkv, cephalo.causal() & cephalo.bias(bias + s))
                     for s in (step, -step))
    assert np.isclose(((ahead - behind) * back).sum() / 2, (d.dbias[0] * step).sum(), rtol=1e-4)


def test_second_derivatives_agree_with_differences(qkv):
    bias = normal(7, 11, seed=4)
    u = [normal(*a.shape, seed=10 + n) for n, a in enumerate([*qkv, bias])]
    back = normal(2, 4, 7, 5, seed=5)

    def at(step):
        moved = [a + step * du for a, du in zip([*qkv, bias], u)]
        mask = cephalo.causal() & cephalo.bias(moved[3])
        result = cephalo.attend(*moved[:3], mask, softcap=5.0, return_lse=True)
        d = cephalo.attend_backward(*moved[:3], result.context, result.lse, back, mask=mask,
                                    softcap=5.0, with_dbias=True)
        return result, d, mask

    step = 1e-5
    (ahead, d_ahead, _), (behind, d_behind, _), (now, _, mask) = at(step), at(-step), at(0.0)
    h = cephalo.attend_second(*qkv, now.context, now.lse, back, *u[:3], [u[3]], mask=mask,
                              softcap=5.0, with_hbias=True)
    t = cephalo.attend_tangent(*qkv, now.context, now.lse, *u[:3], [u[3]], mask=mask, softcap=5.0)
    assert np.array_equal(t.tcontext, h.hdcontext) and np.array_equal(t.tlse, h.hdlse)
    slopes = [(a - b) / (2 * step) for a, b in [
        (d_ahead.dq, d_behind.dq), (d_ahead.dk, d_behind.dk), (d_ahead.dv, d_behind.dv),
        (d_ahead.dbias[0], d_behind.dbias[0]), (ahead.context, behind.context),
        (ahead.lse, behind.lse)]]
    for slope, claimed in zip(slopes, [h.hq, h.hk, h.hv, h.hbias[0], h.hdcontext, h.hdlse]):
        assert np.abs(slope - claimed).max() <= 1e-7
    still = cephalo.attend_second(*qkv, now.context, now.lse, back, mask=mask, softcap=5.0)
    assert not still.hq.any() and not still.hdcontext.any() and still.hbias == []


def test_second_derivatives_refuse_what_does_not_fit(qkv):
    q, k, v = qkv
    result = cephalo.attend(q, k, v, return_lse=True)
    with pytest.raises(ValueError, match="attend_tangent: the direction of q is"):
        cephalo.attend_tangent(q, k, v, result.context, result.lse, k)
    with pytest.raises(ValueError, match="attend_second: 1 directions for the 0 biases"):
        cephalo.attend_second(q, k, v, result.context, result.lse, result.context, ubias=[q])


def test_threads_are_set_and_told():
    before = cephalo.threads()
    assert cephalo.threads(1) == 1 and cephalo.threads() == 1
    assert cephalo.threads(0) >= 1
    cephalo.threads(before)
