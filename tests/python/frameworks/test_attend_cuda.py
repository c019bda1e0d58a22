"""attend on PyTorch tensors of a GPU beside the CPU: where there is one, in builds with CUDA."""

import contextlib

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
    with pytest.raises(ValueError, match="lies on"):
        cephalo.attend(q.cpu(), k.cpu(), v.cpu(), cephalo.lengths(torch.tensor([5, 9], device="cuda")))


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


@contextlib.contextmanager
def nobody_waits():
    """PyTorch raises an error where it would wait for the GPU."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


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


def test_masks_of_the_gpu_are_not_waited_for():
    leaves = [t.requires_grad_() for t in inputs()]
    masks = masks_there()
    with nobody_waits():
        for mask in masks.values():
            cephalo.torch.attend(*leaves, mask).sum().backward()


CU, CU_K = (0, 40, 41, 41, 130), (0, 7, 90, 95, 300)
PACKED = {  # cu_seqlens of keys, mask, what is said of lengths
    "alike": (None, cephalo.torch.causal(), {}),
    "alike, window": (None, cephalo.torch.causal() & cephalo.torch.window(20, 0), {}),
    "alike, prefix": (None, cephalo.torch.causal(9), {"max_seqlen": 89}),
    "otherwise": (CU_K, None, {}),
    "otherwise, causal": (CU_K, cephalo.torch.causal(), {"max_seqlen": 89, "max_seqlen_k": 205}),
    "otherwise, alibi": (CU_K, cephalo.torch.alibi([0.5, 0.25, 0.1, 0.0]), {"max_seqlen": 100, "max_seqlen_k": 300}),
}


def packed_inputs(kv_total, dtype, tail=7):
    """With tokens behind the last sequence, which see nothing."""
    torch.manual_seed(2)
    return [torch.randn(total + tail, 4, 64, device="cuda").to(dtype).requires_grad_()
            for total in (CU[-1], kv_total, kv_total)]


def starts(name, device):
    return [None if of is None else torch.tensor(of, dtype=torch.int32, device=device)
            for of in (CU, PACKED[name][0])]


def packed_call(name):
    _, mask, longest = PACKED[name]

    def attend(q, k, v, cu, cu_k):
        found = cephalo.torch.attend(q, k, v, mask, return_lse=True, cu_seqlens=cu, cu_seqlens_k=cu_k, **longest)
        return found.context, found.lse

    return attend


def loss(context, lse):
    return context.double().sin().sum() + torch.where(lse.isinf(), 0.0, lse.double()).cos().sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PACKED)
def test_packed_sequences_give_the_cpus_results_and_gradients(name, dtype):
    x, there = packed_inputs((PACKED[name][0] or CU)[-1], dtype), starts(name, "cuda")
    with nobody_waits():
        found = packed_call(name)(*x, *there)
        gradients = torch.autograd.grad(loss(*found), x)
    here = [t.detach().cpu().double().requires_grad_() for t in x]
    expected = packed_call(name)(*here, *starts(name, "cpu"))
    assert (found[0].cpu().double() - expected[0]).norm() / expected[0].norm() <= BOUNDS[dtype]
    torch.testing.assert_close(found[1].cpu().double(), expected[1], rtol=1e-4, atol=1e-4)
    assert not found[0][CU[-1]:].any()
    for ours, theirs in zip(gradients, torch.autograd.grad(loss(*expected), here)):
        assert (ours.cpu().double() - theirs).norm() / theirs.norm() <= 2 * BOUNDS[dtype]


@pytest.mark.parametrize("name", PACKED)
def test_packed_sequences_have_the_same_bits_without_gradients(name):
    """One call of the engine where that is possible."""
    _, mask, longest = PACKED[name]
    x, (cu, cu_k) = packed_inputs((PACKED[name][0] or CU)[-1], torch.bfloat16), starts(name, "cuda")
    expected = packed_call(name)(*x, cu, cu_k)[0]
    with nobody_waits():
        found = cephalo.torch.attend(*(t.detach() for t in x), mask, cu_seqlens=cu, cu_seqlens_k=cu_k, **longest)
        with torch.no_grad():
            also = cephalo.torch.attend(*x, mask, cu_seqlens=cu.long(), **longest) if cu_k is None else found
    assert found.shape == expected.shape and not found.requires_grad
    assert torch.equal(found, expected) and torch.equal(also, expected)


def test_packed_sequences_that_do_not_fit_are_refused_on_the_gpu_as_on_the_cpu():
    x, ends = inputs((97, 4, 64)), torch.tensor([0, 97], dtype=torch.int32, device="cuda")
    with pytest.raises(ValueError, match="lengths cannot be joined"):
        cephalo.torch.attend(*x, cephalo.lengths([97]), cu_seqlens=ends)
    with pytest.raises(ValueError, match="must be int32 or int64"):
        cephalo.torch.attend(*x, cu_seqlens=ends.float())
    with pytest.raises(ValueError, match="head_dim"):
        cephalo.torch.attend(x[0][..., :32], *x[1:], cu_seqlens=ends)


@pytest.mark.parametrize("name", ["alike", "otherwise, causal"])
def test_packed_sequences_compile_into_one_graph(name):
    torch.compiler.reset()
    x, there = packed_inputs((PACKED[name][0] or CU)[-1], torch.bfloat16), starts(name, "cuda")
    expected = packed_call(name)(*x, *there)
    found = torch.compile(packed_call(name), fullgraph=True)(*x, *there)
    assert torch.equal(found[0], expected[0])
    for ours, theirs in zip(torch.autograd.grad(loss(*found), x), torch.autograd.grad(loss(*expected), x)):
        torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)


def test_packed_sequences_of_many_tokens_repeat_their_bits():
    torch.manual_seed(3)
    total = 6000
    cuts = torch.randperm(total - 1, device="cuda")[:60].add(1).sort().values
    ends = torch.cat([cuts.new_zeros(1), cuts, cuts.new_full((1,), total)]).int()
    x = [torch.randn(total, 2, 128, device="cuda").bfloat16().requires_grad_() for _ in range(3)]
    expected = None
    for _ in range(20):
        found = cephalo.torch.attend(*x, cephalo.torch.causal(), cu_seqlens=ends)
        gradients = torch.autograd.grad(found.float().sin().sum(), x)
        expected = expected or (found, *gradients)
        assert all(map(torch.equal, (found, *gradients), expected))
    tokens = torch.arange(total, device="cuda")
    ids = torch.bucketize(tokens, ends[1:], right=True)
    visible = (ids[:, None] == ids) & (tokens[:, None] >= tokens)
    plain = F.scaled_dot_product_attention(*(t.detach().float().transpose(0, 1) for t in x), attn_mask=visible)
    assert (found.float().transpose(0, 1) - plain).norm() / plain.norm() <= BOUNDS[torch.bfloat16]


def captured(function):
    """-> a graph that runs the function again, and what it returned"""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = function()
    return graph, results


def with_gradients(leaves, function):
    context = function(*leaves)
    return context, *torch.autograd.grad(context.float().square().sum(), leaves)


def test_a_replayed_graph_drops_other_weights_each_time_and_forward_and_backward_agree():
    q, k, v = inputs((1, 4, 128, 64), torch.float32)
    leaves = [t.requires_grad_() for t in (q, k, torch.ones_like(v))]
    graph, (context, dq, dk, dv) = captured(
        lambda: with_gradients(leaves, lambda *x: cephalo.torch.attend(*x, dropout=0.5)))
    seen = []
    for _ in range(4):
        graph.replay()
        torch.cuda.synchronize()
        seen.append((context.clone(), dv.clone()))
        # sum over keys of what a query kept is its context, of ones; dv sums the same weights the other way
        torch.testing.assert_close((context.double() * 2 * context.double()).sum((2, 3)), dv.double().sum((2, 3)),
                                   rtol=1e-4, atol=1e-4)
    for n in range(3):
        assert not torch.equal(seen[n][0], seen[n + 1][0])
    kept = torch.stack([context for context, _ in seen]).mean()
    assert abs(kept.item() - 1) < 0.1  # what is kept makes up for what is dropped


def test_a_compiled_call_draws_its_seed_on_the_gpu():
    q, k, v = inputs((1, 4, 128, 64))
    run = torch.compile(lambda *x: cephalo.torch.attend(*x, dropout=0.5), fullgraph=True)
    run(q, k, v)
    with nobody_waits():
        first, second = run(q, k, v), run(q, k, v)
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    first = run(q, k, v)
    torch.manual_seed(5)
    assert torch.equal(first, run(q, k, v))


def test_a_replayed_graph_reads_the_numbers_that_are_there_then():
    q, k, v = (t.requires_grad_() for t in inputs())
    filled, prefix = (torch.tensor(numbers, device="cuda") for numbers in ([97, 97], [0, 0]))
    ids = torch.zeros(97, dtype=torch.int32, device="cuda")
    ends = torch.tensor([0, 97, 97], dtype=torch.int32, device="cuda")
    x = [t.detach()[0].transpose(0, 1).contiguous().requires_grad_() for t in (q, k, v)]
    calls = {
        "lengths": lambda: with_gradients((q, k, v), lambda *x: cephalo.torch.attend(
            *x, cephalo.torch.lengths(filled) & cephalo.torch.causal(prefix))),
        "documents": lambda: with_gradients((q, k, v), lambda *x: cephalo.torch.attend(
            *x, cephalo.torch.documents(ids))),
        "packed": lambda: with_gradients(x, lambda *x: cephalo.torch.attend(
            *x, cephalo.torch.causal(), cu_seqlens=ends)),
        "padded": lambda: with_gradients(x, lambda *x: cephalo.torch.attend(
            *x, cephalo.torch.causal(2), cu_seqlens=ends, max_seqlen=97)),
    }
    graphs = {name: captured(call) for name, call in calls.items()}
    for length in (97, 50, 1):
        filled.copy_(torch.tensor([length, 97]))
        prefix.copy_(torch.tensor([3, length]))
        ids.copy_(torch.arange(97) // length)
        ends.copy_(torch.tensor([0, length, 97]))
        for name, (graph, results) in graphs.items():
            graph.replay()
            for found, expected in zip(results, calls[name]()):
                torch.testing.assert_close(found, expected, rtol=0, atol=0, msg=f"{name}, {length}")


def test_what_a_captured_graph_cannot_know_is_refused_by_name():
    ends, other = (torch.tensor([0, 97], dtype=torch.int32, device="cuda") for _ in range(2))
    x = inputs((97, 4, 64))
    with pytest.raises(ValueError, match="pass max_seqlen and max_seqlen_k"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            cephalo.torch.attend(*x, cephalo.torch.causal(), cu_seqlens=ends, cu_seqlens_k=other)


def test_results_are_of_pytorchs_memory():
    """Its allocator is asked, which knows of graphs and of how much there is."""
    q, k, v = inputs((1, 8, 1024, 64))
    before = torch.cuda.memory_allocated()
    context = cephalo.attend(q, k, v)
    assert torch.cuda.memory_allocated() - before == context.nbytes


def test_a_seed_on_the_gpu_is_that_number():
    q, k, v = inputs(dtype=torch.float32)
    seed = torch.tensor(12345, device="cuda")
    there = cephalo.attend(q, k, v, dropout=0.3, device_seed=seed)
    torch.testing.assert_close(there, cephalo.attend(q, k, v, dropout=0.3, seed=12345), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="device_seed is int64 .* on host"):
        cephalo.attend(q, k, v, dropout=0.3, device_seed=seed.cpu())
    with pytest.raises(ValueError, match="device_seed"):
        cephalo.attend(q.cpu(), k.cpu(), v.cpu(), dropout=0.3, device_seed=seed)


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
