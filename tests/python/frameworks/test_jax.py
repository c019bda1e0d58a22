"""JAX's arrays in and out; skipped where JAX is not installed."""

import numpy as np
import pytest
from support import attention, causal

import cephalo

jax = pytest.importorskip("jax")


@pytest.mark.parametrize("dtype, bound", [("float32", 1e-5), ("bfloat16", 2e-2), ("float16", 2e-3)])
def test_arrays_of_jax_come_back_as_such(dtype, bound):
    q, k, v = (jax.random.normal(jax.random.key(n), (2, 3, 7, 8)).astype(dtype) for n in range(3))
    context = cephalo.attend(q, k, v, mask=cephalo.causal())
    assert isinstance(context, jax.Array) and context.dtype == q.dtype
    expected, _ = attention(*(np.asarray(a, np.float64) for a in (q, k, v)), causal(7, 7))
    assert np.abs(np.asarray(context, np.float64) - expected).max() <= bound
    layer = cephalo.MultiHeadAttention(8, 8, 16, 0.0, 2, seed=1)
    assert isinstance(layer(q[0]), jax.Array)
