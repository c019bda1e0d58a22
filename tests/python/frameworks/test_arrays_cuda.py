"""attend on CuPy's and JAX's arrays of a GPU, without copies: where they are installed."""

import os

import numpy as np
import pytest

import cephalo

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others want memory, too
SHAPE = (2, 4, 97, 64)


def inputs(count=3):
    generator = np.random.default_rng(0)
    return [generator.standard_normal(SHAPE).astype(np.float32) for _ in range(count)]


def refused(array):
    try:
        cephalo.plan(array, array, array)
    except TypeError:
        return True
    return False


@pytest.fixture
def cupy():
    cupy = pytest.importorskip("cupy")
    if not cupy.is_available() or refused(cupy.zeros((1, 1, 1, 8), cupy.float32)):
        pytest.skip("no GPU, or a build without CUDA")
    return cupy


def near(ours, expected):
    return np.abs(ours - expected).max() <= 1e-5 * np.abs(expected).max()


def test_cupys_arrays_are_computed_where_they_are(cupy):
    here = inputs(4)
    *there, dcontext = map(cupy.asarray, here)
    visible = np.random.default_rng(1).random((2, 1, 97, 97)) < 0.7
    mask_there = cephalo.causal() & cephalo.keep(cupy.asarray(visible))
    mask_here = cephalo.causal() & cephalo.keep(visible)
    ours = cephalo.attend(*there, mask_there, return_lse=True)
    expected = cephalo.attend(*here[:3], mask_here, return_lse=True)
    assert isinstance(ours.context, cupy.ndarray) and isinstance(ours.lse, cupy.ndarray)
    assert near(cupy.asnumpy(ours.context), expected.context)
    gradients = cephalo.attend_backward(*there, *ours[:2], dcontext, mask=mask_there)
    plain = cephalo.attend_backward(*here[:3], *expected[:2], here[3], mask=mask_here)
    for x, y in zip(gradients[:3], plain[:3]):
        assert isinstance(x, cupy.ndarray) and near(cupy.asnumpy(x), y)


def test_a_call_is_queued_on_cupys_current_stream(cupy):
    q, k, v = map(cupy.asarray, inputs())
    expected = cephalo.attend(q, k, v)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        late = cupy.zeros_like(q)
        for _ in range(50):  # another stream would attend before these
            late = late * 0 + q
        context = cephalo.attend(late, k, v)
    stream.synchronize()
    assert cupy.array_equal(context, expected)


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu" or refused(jax.numpy.zeros((1, 1, 1, 8))):
        pytest.skip("no GPU, or a build without CUDA")
    return jax


def test_jaxs_arrays_are_computed_where_they_are(jax):
    here = inputs(4)
    *there, dcontext = map(jax.numpy.asarray, here)
    visible = np.random.default_rng(1).random((2, 1, 97, 97)) < 0.7
    mask_there = cephalo.causal() & cephalo.keep(jax.numpy.asarray(visible))
    mask_here = cephalo.causal() & cephalo.keep(visible)
    ours = cephalo.attend(*there, mask_there, return_lse=True)
    expected = cephalo.attend(*here[:3], mask_here, return_lse=True)
    for array in ours[:2]:
        assert isinstance(array, jax.Array) and array.devices() == there[0].devices()
    assert near(np.asarray(ours.context), expected.context)
    gradients = cephalo.attend_backward(*there, *ours[:2], dcontext, mask=mask_there)
    plain = cephalo.attend_backward(*here[:3], *expected[:2], here[3], mask=mask_here)
    for x, y in zip(gradients[:3], plain[:3]):
        assert isinstance(x, jax.Array) and near(np.asarray(x), y)


def test_a_call_waits_for_what_jax_has_queued_and_jax_for_the_call(jax):
    """Arrays are given away before they are computed, and gone when the call returns."""
    q, k, v = map(jax.numpy.asarray, inputs())
    expected = np.asarray(cephalo.attend(q, k, v))

    @jax.jit
    def late(x):
        noise = jax.numpy.ones((2048, 2048)) / 2048
        for _ in range(40):
            noise = noise @ noise
        return x * noise[0, 0]

    for _ in range(5):
        context = cephalo.attend(late(q) * 2048, k, v)
        others = [jax.numpy.full(SHAPE, 7.0) for _ in range(8)]  # where the queries were, perhaps
        found = np.asarray(context + 0)
        assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max() and len(others) == 8
