"""attend on PyTorch tensors of a GPU beside the CPU: where there is one, in builds with CUDA."""

import pytest
import torch
import torch.nn.functional as F

import cephalo
import cephalo.torch


def computes_on_gpu():
    if not torch.cuda.is_available():
        return False
    q = torch.zeros(1, 1, 1, 8, device="cuda")
    try:
        cephalo.plan(q, q, q)
    except TypeError:
        return False
    return True


pytestmark = pytest.mark.skipif(not computes_on_gpu(), reason="no GPU, or a build without CUDA")
BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
SHAPE = (2, 4, 97, 40)


def inputs(shape=SHAPE, dtype=torch.bfloat16, count=3):
    torch.manual_seed(0)
    return [torch.randn(shape, device="cuda").to(dtype) for _ in range(count)]


@pytest.mark.parametrize("dtype", BOUNDS)
def test_results_are_the_cpus(dtype):
    q, k, v = inputs(dtype=dtype)
    visible = torch.rand(2, 1, 97, 97, device="cuda") < 0.7
    bias = torch.randn(4, 97, 97, device="cuda")
    cases = [(None, None), (cephalo.causal(), cephalo.causal()),
             (cephalo.keep(visible) & cephalo.bias(bias), cephalo.keep(visible.cpu()) & cephalo.bias(bias.cpu())),
             (cephalo.alibi([0.5, 0.25, 0.1, 0.0]), cephalo.alibi([0.5, 0.25, 0.1, 0.0]))]
    for there, here in cases:
        options = {"softcap": 20.0, "dropout": 0.2, "seed": 7, "return_lse": True}
        ours = cephalo.attend(q, k, v, there, **options)
        wide = [t.cpu().double() for t in (q, k, v)]
        expected = cephalo.attend(*wide, here, **options)
        assert ours.context.device == q.device and ours.context.dtype == dtype
        assert (ours.context.cpu().double() - expected.context).abs().max() <= BOUNDS[dtype] * 3
        assert (ours.lse.cpu().double() - expected.lse).abs().max() <= 1e-4


def test_plan_names_the_engine_and_require_is_heard():
    q, k, v = inputs()
    assert cephalo.plan(q, k, v).engine == "cuda"
    assert cephalo.plan(q.float(), k.float(), v.float()).engine == "cuda_simple"
    assert cephalo.attend(q, k, v, engine="cuda_simple").is_cuda


def test_a_call_is_queued_on_the_current_stream():
    q, k, v = inputs((1, 8, 2048, 128))
    expected = cephalo.attend(q, k, v, cephalo.causal())
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    for _ in range(5):
        with torch.cuda.stream(stream):
            late = torch.zeros_like(q)
            torch.cuda._sleep(20_000_000)
            late.copy_(q)  # another stream would attend before this
            context = cephalo.attend(late, k, v, cephalo.causal())
        stream.synchronize()
        assert torch.equal(context, expected)


def test_out_is_written_where_it_lies():
    q, k, v = inputs()
    merged = torch.empty(2, 97, 4, 40, device="cuda", dtype=torch.bfloat16)
    result = cephalo.attend(q, k, v, out=merged.transpose(1, 2), return_lse=True)
    assert torch.equal(merged.transpose(1, 2), cephalo.attend(q, k, v))
    assert result.lse.is_cuda


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sdpa_gives_gradients(dtype):
    leaves = [t.requires_grad_() for t in inputs(dtype=dtype)]
    plain = [t.detach().double().requires_grad_() for t in leaves]
    ours = cephalo.torch.scaled_dot_product_attention(*leaves, is_causal=True)
    theirs = F.scaled_dot_product_attention(*plain, is_causal=True)
    weight = torch.randn_like(theirs)
    (ours.double() * weight).sum().backward()
    (theirs * weight).sum().backward()
    for x, y in zip(leaves, plain):
        assert ((x.grad.double() - y.grad).norm() / y.grad.norm()) <= BOUNDS[dtype]


def test_compile_keeps_one_graph():
    q, k, v = inputs()
    compiled = torch.compile(lambda *t: cephalo.torch.scaled_dot_product_attention(*t, is_causal=True),
                             fullgraph=True)
    assert torch.equal(compiled(q, k, v), cephalo.torch.scaled_dot_product_attention(q, k, v, is_causal=True))


def test_two_devices_are_refused_with_both_names():
    q, k, v = inputs()
    with pytest.raises(ValueError, match="lies on"):
        cephalo.attend(q, k.cpu(), v)
    with pytest.raises(ValueError, match="lies on"):
        cephalo.attend(q, k, v, cephalo.bias(torch.zeros(97, 97)))
    with pytest.raises(TypeError, match="is on device cuda:0"):
        cephalo.documents(torch.zeros(97, dtype=torch.int64, device="cuda"))
