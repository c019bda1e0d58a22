"""JAX's arrays in and out; those of JAX itself are skipped where it is not installed."""

import numpy as np
import pytest
from support import attention, causal

import cephalo



class OfJax:
    """An array as JAX's own say what they are, without JAX: it writes down which stream it is asked for."""
    __module__ = "jaxlib.test"
    dtype = "float32"

    def __init__(self, device, memory=None):
        self.device, self.memory, self.asked = device, memory, []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        self.asked.append(options.get("stream", "no stream"))
        if self.memory is None:
            raise BufferError("nobody gets it")
        return self.memory.__dlpack__(**options)


def test_memory_of_a_gpu_is_asked_for_on_the_default_stream():
    """1 is DLPack's number of it; a library then makes its array ready for that stream."""
    array = OfJax((2, 0))
    with pytest.raises(TypeError, match="attend: q is on device cuda:0"):
        cephalo.attend(array, array, array)
    assert set(array.asked) == {1}


def test_memory_of_the_host_is_asked_for_without_a_stream():
    array = OfJax((1, 0), np.zeros((1, 1, 2, 8), np.float32))
    assert cephalo.plan(array, array, array).engine
    assert set(array.asked) == {"no stream"}


@pytest.mark.parametrize("dtype, bound", [("float32", 1e-5), ("bfloat16", 2e-2), ("float16", 2e-3)])
def test_arrays_of_jax_come_back_as_such(dtype, bound):
    jax = pytest.importorskip("jax")
    with jax.default_device(jax.devices("cpu")[0]):  # a layer computes there
        q, k, v = (jax.random.normal(jax.random.key(n), (2, 3, 7, 8)).astype(dtype) for n in range(3))
        context = cephalo.attend(q, k, v, mask=cephalo.causal())
        assert isinstance(context, jax.Array) and context.dtype == q.dtype
        expected, _ = attention(*(np.asarray(a, np.float64) for a in (q, k, v)), causal(7, 7))
        assert np.abs(np.asarray(context, np.float64) - expected).max() <= bound
        layer = cephalo.MultiHeadAttention(8, 8, 16, 0.0, 2, seed=1)
        assert isinstance(layer(q[0]), jax.Array)
