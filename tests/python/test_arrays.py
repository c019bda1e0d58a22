"""Arrays in and out: where they lie, of what kind, and which are refused."""

import gc
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest
from support import attention, normal

import cephalo

BOUNDS = {np.float64: 1e-12, np.float32: 1e-5, np.float16: 2e-3, ml_dtypes.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", BOUNDS)
def test_floating_types_come_back_as_they_went_in(dtype):
    q, k, v = (normal(2, 3, 17, 8, dtype=dtype, seed=s) for s in range(3))
    context = cephalo.attend(q, k, v)
    assert type(context) is np.ndarray and context.dtype == np.dtype(dtype)
    assert context.flags.writeable
    assert np.abs(context.astype(np.float64) - attention(q, k, v)[0]).max() <= BOUNDS[dtype]


@pytest.mark.parametrize("dtype, unit", [(np.float32, 2.0 ** -22), (np.float16, 2.0 ** -11),
                                         (ml_dtypes.bfloat16, 2.0 ** -8)])
def test_gradients_come_back_in_the_types_of_their_arrays(dtype, unit):
    """float64 says what is right; a number is rounded when it is stored, and context was before."""
    q, k, v, back = (normal(2, 3, 17, 8, dtype=dtype, seed=s) for s in range(4))
    bias = normal(3, 17, 17, dtype=dtype, seed=4)

    def gradients(*arrays):
        q, k, v, back, bias = arrays
        mask = cephalo.causal() & cephalo.bias(bias)
        result = cephalo.attend(q, k, v, mask, return_lse=True)
        found = cephalo.attend_backward(q, k, v, result.context, result.lse, back, mask=mask, with_dbias=True)
        return [*found[:3], *found.dbias]

    ours = gradients(q, k, v, back, bias)
    exact = gradients(*(a.astype(np.float64) for a in (q, k, v, back, bias)))
    assert [d.dtype for d in ours] == [np.dtype(dtype)] * 3 + [np.dtype(np.float32)]
    for a, b in zip(ours, exact):
        assert a.shape == b.shape and np.abs(a.astype(np.float64) - b).max() <= 3 * unit * np.abs(b).max()


def test_float32_queries_meet_16_bit_keys():
    q, k = normal(2, 5, 8), normal(2, 9, 8, dtype=np.float16, seed=1)
    assert cephalo.attend(q, k, k).dtype == np.float32


LAYOUTS = {
    "negative strides": lambda a: np.ascontiguousarray(a[:, :, ::-1])[:, :, ::-1],
    "Fortran": np.asfortranarray,
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "tokens before heads": lambda a: np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2),
    "every second": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "a subclass": lambda a: a.view(type("Mine", (np.ndarray,), {})),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_any_strides_give_the_same_bits(layout, dtype):
    q, k, v = (normal(2, 3, 17, 8, dtype=dtype, seed=s) for s in range(3))
    laid = [LAYOUTS[layout](a) for a in (q, k, v)]
    assert all(np.array_equal(a, b) for a, b in zip(laid, (q, k, v)))
    assert np.array_equal(cephalo.attend(*laid), cephalo.attend(q, k, v))


def test_elements_between_two_addresses_are_refused_by_name():
    memory = bytearray(8 * 6 * 4 + 1)
    odd = np.frombuffer(memory, np.float64, count=24, offset=1).reshape(6, 4)
    with pytest.raises(ValueError, match="float64 at an address that is not a multiple of 8; pass a copy"):
        cephalo.attend(odd, odd, odd)
    assert cephalo.attend(odd.copy(), odd.copy(), odd.copy()).shape == (6, 4)


def test_broadcast_arrays_need_no_memory():
    k = normal(1, 1, 9, 8)
    many = np.broadcast_to(k, (4, 6, 9, 8))
    assert many.strides[:2] == (0, 0)
    q = normal(4, 6, 5, 8, seed=1)
    assert np.array_equal(cephalo.attend(q, many, many), cephalo.attend(q, many.copy(), many.copy()))


def test_the_callers_arrays_never_change():
    arrays = [normal(2, 3, 5, 8, seed=s) for s in range(3)]
    before = [a.copy() for a in arrays]
    hide = np.eye(5, dtype=bool)
    cephalo.attend(*arrays, mask=cephalo.drop(hide), dropout=0.1, return_weights=True)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before))
    assert np.array_equal(hide, np.eye(5, dtype=bool))


@pytest.mark.parametrize("make, named", [
    (lambda a: a.astype(">f4"), ">f4"),
    (lambda a: a.astype(object), "object"),
    (lambda a: a.astype(np.complex64), "complex64"),
    (lambda a: a.astype(np.uint32), "uint32"),
    (lambda a: a.astype("U8"), "<U8"),
    (lambda a: a.astype(ml_dtypes.float8_e4m3), "float8_e4m3"),
    (lambda a: a.astype(np.int32), "int32"),
    (lambda a: a.astype(bool), "bool"),
    (lambda a: a.tolist(), "list"),
    (lambda a: 3.5, "a float"),
    (lambda a: 3, "an int"),
])
def test_what_is_no_array_of_floats_is_a_type_error_that_names_it(make, named):
    a = normal(3, 4)
    with pytest.raises(TypeError, match=rf"^attend: q is .*{named}"):
        cephalo.attend(make(a), a, a)


class OnDevice:
    def __init__(self, kind, number):
        self.device = (kind, number)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        raise RuntimeError("memory is elsewhere")


@pytest.mark.parametrize("device, named", [((2, 1), "cuda:1"), ((10, 0), "rocm:0"), ((8, 0), "metal:0")])
def test_another_device_is_refused_by_name(device, named):
    a = normal(3, 4)
    with pytest.raises(TypeError, match=f"attend: k is on device {named}"):
        cephalo.attend(a, OnDevice(*device), a)


def test_nine_dimensions_are_refused():
    a = np.zeros((1,) * 9, np.float32)
    with pytest.raises(ValueError, match="attend: q has 9 dimensions"):
        cephalo.attend(a, a, a)


def test_out_is_written_where_it_lies():
    q, k, v = (normal(2, 3, 5, 8, seed=s) for s in range(3))
    merged = np.zeros((2, 5, 3, 8), np.float32)
    out = merged.swapaxes(1, 2)
    assert cephalo.attend(q, k, v, out=out) is out
    expected = cephalo.attend(q, k, v)
    assert np.array_equal(merged, expected.swapaxes(1, 2))
    result = cephalo.attend(q, k, v, return_lse=True, return_weights=True, out=out)
    assert result.context is out and result.lse.shape == (2, 3, 5)
    assert np.array_equal(out, expected)


def test_out_that_does_not_fit_is_an_error():
    q = normal(2, 3, 5, 8)
    with pytest.raises(ValueError, match="read-only"):
        out = np.zeros_like(q)
        out.flags.writeable = False
        cephalo.attend(q, q, q, out=out)
    with pytest.raises(ValueError, match=r"\[2, 3, 5, 7\]"):
        cephalo.attend(q, q, q, out=np.zeros((2, 3, 5, 7), np.float32))


@pytest.mark.parametrize("strides", [(32, 0), (0, 4), (4, 4), (28, 4), (-28, 4)])
def test_out_whose_elements_share_memory_is_an_error(strides):
    q = normal(5, 8)
    out = np.lib.stride_tricks.as_strided(np.zeros(80, np.float32)[40:], (5, 8), strides)
    with pytest.raises(ValueError, match=r"attend: out has elements that share memory \(shape \(5, 8\)"):
        cephalo.attend(q, q, q, out=out)
    assert not out.any()


@pytest.mark.parametrize("shape, axes", [((5, 8), (1, 0)), ((1, 1, 5, 8), (3, 1, 2, 0))])
def test_out_may_lie_in_any_order(shape, axes):
    q = normal(*shape)
    out = np.transpose(np.zeros(np.array(shape)[list(axes)], np.float32), np.argsort(axes))[..., ::-1]
    assert np.array_equal(cephalo.attend(q, q, q, out=out), cephalo.attend(q, q, q))


MASKED = np.ma.masked_array(np.ones((4, 4), np.float32), mask=np.eye(4))


@pytest.mark.parametrize("call, who", [
    (lambda a, b: cephalo.attend(a, b, b), "attend: q"),
    (lambda a, b: cephalo.attend(b, b, b, out=a), "attend: out"),
    (lambda a, b: cephalo.keep(a.astype(bool)), "keep: t"),
    (lambda a, b: cephalo.bias(a), "bias: t"),
    (lambda a, b: cephalo.documents(a.astype(np.int64)), "documents: ids"),
    (lambda a, b: cephalo.MultiHeadAttention(4, 4, 0, 0.0, 2)(a), "MultiHeadAttention: x"),
    (lambda a, b: cephalo.MultiHeadAttention(4, 4, 0, 0.0, 2).update("W_key.weight", a),
     "MultiHeadAttention: W_key.weight"),
    (lambda a, b: cephalo.Gpt(20, 8, 8, 2, 1)(a.astype(np.int64)), "Gpt: ids"),
    (lambda a, b: cephalo.Windows(a.astype(np.int64).ravel(), 3), "Windows: source"),
    (lambda a, b: cephalo.cross_entropy(a, [1, 2, 3, 0]), "cross_entropy: logits"),
    (lambda a, b: cephalo.MultiHeadAttention(4, 4, 0, 0.0, 2).look(a), "MultiHeadAttention: x"),
])
def test_a_masked_array_is_refused_by_name(call, who):
    with pytest.raises(TypeError, match=f"{who} is a numpy.ma.MaskedArray, whose mask would be lost"):
        call(MASKED, np.ones((4, 4), np.float32))


class Raising:
    """An array whose producer is interrupted, or out of memory."""

    def __init__(self, error, device_too=False):
        self.error, self.device_too = error, device_too

    def __dlpack__(self, **options):
        if self.device_too:
            raise BufferError
        raise self.error

    def __dlpack_device__(self):
        raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("name", ["q", "k", "out"])
def test_what_is_no_refusal_of_an_array_reaches_the_caller(error, name):
    a = np.ones((3, 4), np.float32)
    with pytest.raises(error):
        cephalo.attend(**{"q": a, "k": a, "v": a, name: Raising(error)})


def test_ctrl_c_while_an_array_names_its_device_reaches_the_caller():
    a = np.ones((3, 4), np.float32)
    with pytest.raises(KeyboardInterrupt):
        cephalo.attend(Raising(KeyboardInterrupt, device_too=True), a, a)
    with pytest.raises(TypeError, match="attend: q is a Raising; an array is needed"):
        cephalo.attend(Raising(ValueError), a, a)


def test_a_mask_keeps_its_array_alive_and_in_place():
    hide = np.tri(5, dtype=bool)
    watched = weakref.ref(hide)
    mask = cephalo.causal() & cephalo.keep(hide)
    with pytest.raises(ValueError, match="resize"):
        hide.resize((50, 50))
    q = normal(5, 8)
    expected = cephalo.attend(q, q, q, mask=mask)
    del hide
    gc.collect()
    assert watched() is not None
    assert np.array_equal(cephalo.attend(q, q, q, mask=mask), expected)
    del mask
    gc.collect()
    assert watched() is None


def test_results_outlive_what_made_them_and_leave_no_references():
    layer = cephalo.MultiHeadAttention(8, 8, 0, 0.0, 2, seed=1)
    weight = layer.parameters["W_query.weight"]
    expected = weight.copy()
    del layer
    gc.collect()
    assert np.array_equal(weight, expected)
    q = normal(5, 8)
    references = sys.getrefcount(q)
    for _ in range(100):
        cephalo.attend(q, q, q)
    assert sys.getrefcount(q) == references


def test_integers_of_any_width_are_masks():
    q = normal(5, 8)
    see = np.tri(5, dtype=bool)
    expected = cephalo.attend(q, q, q, mask=cephalo.causal())
    for dtype in (bool, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64):
        assert np.array_equal(cephalo.attend(q, q, q, mask=cephalo.keep(see.astype(dtype))), expected)
        assert np.array_equal(cephalo.attend(q, q, q, mask=cephalo.drop((~see).astype(dtype))), expected)
    with pytest.raises(TypeError, match="float32"):
        cephalo.keep(see.astype(np.float32))


def test_arrays_of_cephalo_go_anywhere():
    q = memoryview(normal(3, 4))
    context = cephalo.attend(q, q, q)
    assert np.asarray(context).base is not None
    np.asarray(context)[0, 0] = 7.0
    assert context.tolist()[0][0] == 7.0
    assert np.array_equal(np.from_dlpack(context), np.asarray(context))
    assert isinstance(cephalo.attend(context, context, context), cephalo.Array)
    with pytest.raises(IndexError):
        context[3]
