"""Misuse of scaled_dot_product_attention, and inputs at the edge of use: what PyTorch's own function does."""

import pytest
import torch
import torch.nn.functional as F

from cephalo.torch import scaled_dot_product_attention

q = torch.randn(2, 4, 4, 3, generator=torch.Generator().manual_seed(3))
MASK = torch.randn(4, 4, generator=torch.Generator().manual_seed(4))


def same(tensor):
    return {"query": tensor, "key": tensor, "value": tensor}


def nested(layout=torch.strided):
    parts = [torch.randn(tokens, 4, 3) for tokens in (4, 5)]
    if layout is torch.strided:
        return torch.nested.nested_tensor([part.transpose(0, 1) for part in parts])
    return torch.nested.nested_tensor(parts, layout=layout).transpose(1, 2)


def quantized():
    return torch.quantize_per_tensor(q, 0.1, 0, torch.qint8)


# What is changed about a call with q three times, and what the message says.
MISUSE = {
    "a list": (lambda: {"query": q.tolist()}, "query is a list"),
    "an array": (lambda: {"key": q.numpy()}, "key is an ndarray"),
    "one dimension": (lambda: {"query": q[0, 0, 0]}, r"query has shape \(3,\); at least 2"),
    "two dtypes": (lambda: {"key": q.double()}, "of one dtype.*float32, torch.float64 and torch.float32"),
    "integers": (lambda: same(q.int()), "query is of dtype torch.int32; supported"),
    "one of integers": (lambda: {"query": q.long()}, "query is of dtype torch.int64; supported"),
    "bools": (lambda: same(q > 0), "query is of dtype torch.bool"),
    "complex": (lambda: same(q + 0j), "query is of dtype torch.complex64"),
    "conjugate": (lambda: same(torch.conj(q + 1j)), "query is of dtype torch.complex64"),
    "8 bits": (lambda: same(q.to(torch.float8_e4m3fn)), "query is of dtype torch.float8_e4m3fn"),
    "meta": (lambda: {"query": q.to("meta")}, "query is on device meta"),
    "sparse": (lambda: same(q.to_sparse()), "query is of layout torch.sparse_coo.*to_dense"),
    "sparse keys": (lambda: {"key": q.to_sparse()}, "key is of layout torch.sparse_coo"),
    "csr": (lambda: {"query": q[0].to_sparse_csr(), "key": q[0], "value": q[0]}, "layout torch.sparse_csr"),
    "mkldnn": (lambda: same(q.to_mkldnn()), "query is of layout torch._mkldnn"),
    "quantized": (lambda: same(quantized()), r"query is quantized \(torch.qint8\); call dequantize"),
    "quantized keys": (lambda: {"key": quantized()}, "key is quantized"),
    "one nested": (lambda: {"query": nested()}, "query is a nested tensor and key is not"),
    "one jagged": (lambda: {"query": nested(torch.jagged)}, "query is a nested tensor and key is not"),
    "head_dim": (lambda: {"key": q[..., :2]}, r"head_dim of q \(3\) and k \(2\)"),
    "batches": (lambda: {"key": q[:1].expand(3, 4, 4, 3)}, r"key \(3, 4, 4, 3\).*do not broadcast"),
    "heads": (lambda: {"key": q[:, :2], "value": q[:, :2]}, "4 heads and key 2; enable_gqa"),
    "shared heads": (lambda: {"key": q[:, :3], "value": q[:, :3], "enable_gqa": True}, "key 3.*multiple"),
    "a mask of integers": (lambda: {"attn_mask": torch.ones(4, 4, dtype=torch.int32)}, "attn_mask.*int32"),
    "a mask of another dtype": (lambda: {"attn_mask": MASK.double()}, "attn_mask.*float64"),
    "a complex mask": (lambda: {"attn_mask": MASK + 0j}, "attn_mask.*complex64"),
    "a mask and is_causal": (lambda: {"attn_mask": MASK, "is_causal": True}, "exclude each other"),
    "a mask's shape": (lambda: {"attn_mask": MASK[:3, :3]}, r"\[1, 1, 3, 3\].* does not broadcast"),
    "a mask's batch": (lambda: {"attn_mask": torch.ones(3, 1, 4, 4)}, "does not broadcast"),
    "a mask's rank": (lambda: {"attn_mask": torch.ones(2, 1, 1, 4, 4)}, "more dimensions than the scores, 4"),
    "a mask of one dimension": (lambda: {"attn_mask": MASK[0]}, r"attn_mask has shape \(4,\)"),
    "a mask's kind": (lambda: {"attn_mask": [[1.0]]}, "attn_mask is a list"),
    "a sparse mask": (lambda: {"attn_mask": MASK.to_sparse()}, "attn_mask is of layout torch.sparse_coo"),
    "a mkldnn mask": (lambda: {"attn_mask": MASK.to_mkldnn()}, "attn_mask is of layout torch._mkldnn"),
    "a nested mask": (lambda: {"attn_mask": torch.nested.nested_tensor([MASK])}, "attn_mask is a nested"),
    "too much dropout": (lambda: {"dropout_p": 2.0}, r"dropout_p \(2.0\) must be in \[0, 1\]"),
    "too little dropout": (lambda: {"dropout_p": -0.1}, r"dropout_p \(-0.1\)"),
    "no dropout_p": (lambda: {"dropout_p": None}, "dropout_p is a NoneType; a number"),
    "dropout_p in words": (lambda: {"dropout_p": "half"}, "dropout_p is a str; a number"),
    "scale in words": (lambda: {"scale": "half"}, "scale is a str; a number"),
    "is_causal in words": (lambda: {"is_causal": "yes"}, "is_causal is a str; a bool"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", MISUSE)
def test_misuse_raises_pytorchs_class_and_names_the_case(case):
    change, text = MISUSE[case]
    arguments = same(q) | change()
    with pytest.raises(Exception) as theirs:
        F.scaled_dot_product_attention(**arguments)
    with pytest.raises(theirs.type, match=f"^scaled_dot_product_attention: .*{text}") as ours:
        scaled_dot_product_attention(**arguments)
    assert isinstance(ours.value, (TypeError, ValueError))  # as cephalo documents


# What PyTorch computes, or reads from memory that is not there, and cephalo refuses.
REFUSED_HERE = {
    "nested": (lambda: same(nested()), NotImplementedError, "query is a nested tensor; cephalo.torch.attend"),
    "jagged": (lambda: same(nested(torch.jagged)), NotImplementedError, "query is a nested tensor"),
    "fewer values than keys": (lambda: {"value": q[:, :, :3]}, RuntimeError, "kv_tokens of k"),
    "no heads of keys": (lambda: {"key": q[:, :0], "value": q[:, :0]}, RuntimeError, "4 heads and key 0"),
    "a mask on meta": (lambda: {"attn_mask": MASK.to("meta")}, RuntimeError, "attn_mask is on device meta"),
    "an infinite scale": (lambda: {"scale": torch.inf}, RuntimeError, "scale .inf. must be finite"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", REFUSED_HERE)
def test_what_is_refused_beyond_pytorch_is_named(case):
    change, error, text = REFUSED_HERE[case]
    with pytest.raises(error, match=text):
        scaled_dot_product_attention(**(same(q) | change()))


def overlapping():
    return torch.randn(60).as_strided((2, 4, 4, 3), (5, 3, 2, 1))


EDGES = {
    "everything dropped": lambda: same(q) | {"dropout_p": 1.0},
    "everything dropped, causal": lambda: same(q) | {"dropout_p": 1, "is_causal": True},
    "everything dropped, with a mask": lambda: same(q) | {"dropout_p": 1.0, "attn_mask": MASK.clone()},
    "everything dropped, three dimensions": lambda: same(q[0]) | {"dropout_p": 1.0},
    "head_dim 0": lambda: {"query": q[..., :0], "key": q[..., :0], "value": q},
    "head_dim 0, causal": lambda: {"query": q[..., :0], "key": q[..., :0], "value": q, "is_causal": True},
    "head_dim 0, with a mask": lambda: {"query": q[..., :0], "key": q[..., :0], "value": q,
                                        "attn_mask": MASK.clone()},
    "head_dim 0, two dimensions": lambda: {"query": q[0, 0, :, :0], "key": q[0, 0, :, :0], "value": q[0, 0]},
    "head_dim and v_dim 0": lambda: same(q[..., :0]),
    "v_dim 0": lambda: same(q) | {"value": q[..., :0]},
    "no queries": lambda: same(q) | {"query": q[:, :, :0]},
    "no keys": lambda: {"query": q, "key": q[:, :, :0], "value": q[:, :, :0]},
    "no tokens": lambda: same(q[:, :, :0]),
    "no batches": lambda: same(q[:0]),
    "no batches, three dimensions": lambda: same(q[0, :0]),
    "no batches, five dimensions": lambda: same(q[None, :0]),
    "no batches, with a mask": lambda: same(q[:0]) | {"attn_mask": torch.zeros(0, 1, 4, 4)},
    "no heads": lambda: same(q[:, :0]),
    "no heads, with a mask": lambda: same(q[:, :0]) | {"attn_mask": torch.zeros(2, 1, 4, 4)},
    "no heads and one": lambda: {"query": q[:, :0], "key": q[:, :1], "value": q[:, :1]},
    "negative": lambda: same(torch._neg_view(q)),
    "negative keys": lambda: same(q) | {"key": torch._neg_view(q)},
    "negative, three dimensions": lambda: same(torch._neg_view(q[0])),
    "a negative mask": lambda: same(q) | {"attn_mask": torch._neg_view(MASK)},
    "of a conjugate": lambda: same(torch.conj(torch.complex(q, q)).imag),
    "repeated by strides": lambda: same(q) | {"query": q[:1, :1].expand(2, 4, 4, 3)},
    "repeated within a row": lambda: same(q[..., :1].expand(2, 4, 4, 3)),
    "overlapping": lambda: same(overlapping()),
    "with gaps": lambda: same(torch.randn(4, 8, 8, 6)[::2, ::2, ::2, ::2]),
    "turned around": lambda: same(torch.randn(3, 4, 4, 2).permute(3, 2, 1, 0)),
    "nothing visible": lambda: same(q) | {"attn_mask": torch.full((4, 4), -torch.inf)},
}


def values_and_gradients(f, arguments):
    leaves = {name: t.clone().requires_grad_() if t.numel() == 0 else t.detach().requires_grad_()
              for name, t in arguments.items() if isinstance(t, torch.Tensor)}
    context = f(**(arguments | leaves))
    return [context, *torch.autograd.grad(context.sin().sum(), list(leaves.values()), materialize_grads=True)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", EDGES)
def test_edges_have_the_values_and_gradients_of_pytorch(case):
    torch.manual_seed(1)
    arguments = EDGES[case]()
    for a, b in zip(values_and_gradients(scaled_dot_product_attention, arguments),
                    values_and_gradients(F.scaled_dot_product_attention, arguments), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ["everything dropped", "head_dim 0", "no heads", "negative keys"])
def test_edges_are_compiled_too(case):
    arguments = EDGES[case]()
    names, tensors = zip(*((n, t) for n, t in arguments.items() if isinstance(t, torch.Tensor)))
    others = {n: t for n, t in arguments.items() if n not in names}

    @torch.compile(fullgraph=True, backend="aot_eager")
    def call(*tensors):
        return scaled_dot_product_attention(**dict(zip(names, tensors)), **others)

    torch.testing.assert_close(call(*tensors), F.scaled_dot_product_attention(**arguments), atol=1e-5, rtol=1e-5)


def test_negative_gradients_and_tangents_are_read_as_such():
    def call(x):
        return scaled_dot_product_attention(x, x, x)

    results = []
    for along in (torch._neg_view(q.double()), -q.double()):
        x = q.double().requires_grad_()
        call(x).backward(along)
        results.append([x.grad, torch.func.jvp(call, (x.detach(),), (along,))[1]])
    torch.testing.assert_close(*results)


def test_shapes_alone_are_computed_on_meta():
    arguments = {"query": q.to("meta"), "key": q[:, :, :2].to("meta"), "value": q[:, :, :2, :1].to("meta")}
    ours, theirs = (f(**arguments) for f in (scaled_dot_product_attention, F.scaled_dot_product_attention))
    assert ours.is_meta and ours.shape == theirs.shape and ours.dtype == theirs.dtype


def test_errors_of_others_pass():
    def broken(tensor):
        raise ValueError("of somebody else")

    x = q.clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(broken, broken), pytest.raises(ValueError) as error:
        scaled_dot_product_attention(x, x, x)
    assert type(error.value) is ValueError and str(error.value) == "of somebody else"
