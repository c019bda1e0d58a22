"""attend on PyTorch tensors of a GPU beside the CPU: where there is one, in builds with CUDA."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

import cephalo
import cephalo.torch
from cephalo.torch import ring


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
    assert cephalo.plan(q.float(), k.float(), v.float()).engine == "cuda"
    assert cephalo.plan(q.double(), k.double(), v.double()).engine == "cuda_simple"
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


def test_bf16x3_is_another_arithmetic():
    q, k, v = inputs((1, 2, 300, 128), torch.float32)
    exact = cephalo.attend(*(t.cpu().double() for t in (q, k, v)))
    errors = {name: ((cephalo.attend(q, k, v, arithmetic=name).cpu() - exact).norm() / exact.norm()).item()
              for name in ("exact", "bf16x3")}
    assert errors["exact"] <= 1e-6 < errors["bf16x3"] <= 2e-5
    with pytest.raises(ValueError, match="arithmetic"):
        cephalo.attend(q, k, v, arithmetic="fast")


def masks_there():
    """Of 2 sequences of 97 tokens and 4 heads, tensors of all parts on the GPU."""
    torch.manual_seed(1)
    ids = torch.arange(97, device="cuda") // 30
    return {
        "causal": cephalo.torch.causal(),
        "lengths": cephalo.torch.lengths(torch.tensor([97, 60], device="cuda")) & cephalo.torch.causal(),
        "prefix": cephalo.torch.causal(torch.tensor([5, 40], device="cuda")),
        "documents": cephalo.torch.documents(ids) & cephalo.torch.causal(),
        "alibi": cephalo.torch.alibi(torch.tensor([0.5, 0.25, 0.1, 0.0], device="cuda")),
        "keep": cephalo.torch.keep(torch.rand(2, 1, 97, 97, device="cuda") < 0.7),
        "bias": cephalo.torch.bias(torch.randn(4, 97, 97, device="cuda")) & cephalo.torch.window(40, 10),
    }


def to_cpu(mask):
    return cephalo.torch.Mask(mask.text, mask.roles, tuple(t.cpu() for t in mask.tensors))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", masks_there() if torch.cuda.is_available() else [])
def test_attend_of_torch_gives_the_cpus_results_and_gradients(name, dtype):
    mask = masks_there()[name]
    leaves = [t.requires_grad_() for t in inputs(dtype=dtype)]
    plain = [t.detach().cpu().double().requires_grad_() for t in leaves]
    context, lse, *_ = cephalo.torch.attend(*leaves, mask, softcap=20.0, return_lse=True)
    expected, expected_lse, *_ = cephalo.torch.attend(*plain, to_cpu(mask), softcap=20.0, return_lse=True)
    weight, of_lse = torch.randn_like(expected), torch.randn_like(expected_lse)
    assert context.is_cuda and context.dtype == dtype
    seen = torch.isfinite(expected_lse)
    (context.cpu().double() * weight).sum().add((lse.cpu().double() * of_lse)[seen].sum()).backward()
    (expected * weight).sum().add((expected_lse * of_lse)[seen].sum()).backward()
    assert (context.cpu().double() - expected).norm() / expected.norm() <= BOUNDS[dtype]
    for x, y in zip(leaves, plain):
        assert (x.grad.cpu().double() - y.grad).norm() / y.grad.norm() <= BOUNDS[dtype]


def test_a_bias_on_the_gpu_has_a_gradient():
    q, k, v = inputs(dtype=torch.float64)
    bias = torch.randn(1, 4, 97, 97, device="cuda", dtype=torch.float64, requires_grad=True)
    cephalo.torch.attend(q, k, v, cephalo.torch.bias(bias)).square().sum().backward()
    here = bias.detach().cpu().requires_grad_()
    cephalo.torch.attend(q.cpu(), k.cpu(), v.cpu(), cephalo.torch.bias(here)).square().sum().backward()
    assert torch.allclose(bias.grad.cpu(), here.grad, rtol=1e-9, atol=1e-12)


def test_gradcheck_on_the_gpu():
    leaves = [t.requires_grad_() for t in inputs((1, 2, 7, 5), torch.float64)]
    mask = cephalo.torch.causal() & cephalo.torch.alibi([0.5, 0.1])
    assert torch.autograd.gradcheck(lambda *t: cephalo.torch.attend(*t, mask), leaves, fast_mode=True)


def test_compiled_attend_is_one_graph_forward_and_backward():
    mask = masks_there()["keep"]

    def loss(q, k, v):
        return cephalo.torch.attend(q, k, v, mask, return_lse=True).context.float().square().sum()

    eager, compiled = ([t.requires_grad_() for t in inputs()] for _ in range(2))
    loss(*eager).backward()
    torch.compile(loss, fullgraph=True)(*compiled).backward()
    for x, y in zip(eager, compiled):
        assert torch.equal(x.grad, y.grad)


def test_packed_sequences_are_those_one_by_one():
    ends = torch.tensor([0, 40, 41, 130], dtype=torch.int32, device="cuda")
    q, k, v = inputs((130, 4, 64))
    packed = cephalo.torch.attend(q, k, v, cephalo.torch.causal(), cu_seqlens=ends)
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist()):
        alone = cephalo.torch.attend(*(t[begin:end].transpose(0, 1) for t in (q, k, v)), cephalo.torch.causal())
        difference = packed[begin:end].transpose(0, 1).float() - alone.float()
        assert difference.norm() / alone.float().norm() <= BOUNDS[torch.bfloat16]


def test_autocast_lowers_as_pytorchs_function_does():
    q, k, v = inputs(dtype=torch.float32)
    with torch.autocast("cuda", torch.bfloat16):
        for function in (cephalo.torch.attend, cephalo.torch.scaled_dot_product_attention):
            assert function(q, k, v).dtype == F.scaled_dot_product_attention(q, k, v).dtype == torch.bfloat16
        assert cephalo.torch.attend(q.cpu(), k.cpu(), v.cpu()).dtype == torch.float32


def test_weights_of_a_gpus_tensors_are_refused_by_name():
    q, k, v = inputs()
    with pytest.raises(TypeError, match="cuda"):
        cephalo.torch.attend(q, k, v, return_weights=True)


@pytest.mark.skipif(not dist.is_nccl_available(), reason="PyTorch without NCCL")
def test_a_ring_of_one_over_nccl_is_attend(tmp_path):
    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        tensors = inputs()
        own, whole = ([t.clone().requires_grad_() for t in tensors] for _ in range(2))
        found = ring.attend_ring(*own, SHAPE[2], cephalo.causal(), return_lse=True)
        expected = cephalo.torch.attend(*whole, cephalo.causal(), return_lse=True)
        for result in (found, expected):
            (result.context.float().sum() + result.lse.sum()).backward()
        assert torch.equal(found.context, expected.context) and torch.equal(found.lse, expected.lse)
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(own, whole))
        assert torch.equal(ring.join_tokens(found.context, 2, SHAPE[2]), expected.context)
        with pytest.raises(ValueError, match="all 98 tokens"):
            ring.attend_ring(*own, SHAPE[2] + 1)
    finally:
        dist.destroy_process_group()
