"""gpu_rows.py --library LIB [--quick | --masks | --float32 | --wide] [--rounds N]: attention on a GPU beside
cuDNN's, through PyTorch.

Both take turns in one process: the card runs at its power limit, so a contestant's clock depends on
who ran just before. Times are CUDA events around several calls, medians over the rounds; results
are compared as well. FLOPs: 4 · batch · heads · tokens² · head_dim, half of it with a causal mask;
backward 2.5 times that. With --masks: what positions do not say, beside FlexAttention (compiled, warm)
or cuDNN, FLOPs of visible pairs. With --float32: beside PyTorch's float32 attention, exact and bf16x3; the
difference is from float64, of a few heads. With --wide: rows of more than 128 columns beside PyTorch's choice.
"""

import argparse
import ctypes
import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import native

SHAPES = [(1, 16, 16384, 128), (1, 16, 16384, 64), (4, 16, 4096, 128), (4, 16, 4096, 64), (16, 12, 1024, 64)]
DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
CUDA = 1
EXACT, BF16X3 = 0, 1


def gpu_tensor(tensor):
    """cephalo_tensor of a torch tensor, which it keeps alive."""
    view = native.Tensor.__new__(native.Tensor)
    ctypes.Structure.__init__(view, tensor.data_ptr(), DTYPES[tensor.dtype], tensor.dim(),
                              (ctypes.c_int64 * 4)(*tensor.shape), (ctypes.c_int64 * 4)(*tensor.stride()))
    view.array = tensor
    return view


class Ours:
    """attend and attend_backward on torch's current stream."""

    def __init__(self, path):
        self.library = native.Cephalo(path)
        self.causal = native.Mask(self.library, [("causal", 0)])

    def mask(self, *parts):
        return native.Mask(self.library, parts)

    def options(self, any_order=False, softcap=0.0, dropout=0.0, arithmetic=EXACT):
        options = self.library.lib.cephalo_attend_options_default()
        if softcap:
            options.softcap = softcap
        options.dropout = dropout
        options.device = CUDA + torch.cuda.current_device()
        options.any_order = any_order
        options.arithmetic = arithmetic
        options.stream = torch.cuda.current_stream().cuda_stream
        return options

    def forward(self, q, k, v, mask, **asked):
        """A function without arguments that attends, and its results."""
        context = torch.empty(*q.shape[:-1], v.shape[-1], dtype=q.dtype, device=q.device)
        lse = torch.empty(q.shape[:-1], device=q.device)
        tensors, options = [gpu_tensor(t) for t in (q, k, v, context, lse)], self.options(**asked)
        pointers = [ctypes.byref(t) for t in tensors]
        handle = mask.handle if mask else None

        def call():
            self.library.check(self.library.lib.cephalo_attend(
                *pointers[:3], handle, ctypes.byref(options), *pointers[3:]))

        call.keeps_alive = (tensors, options, mask)
        return call, context, lse

    def backward(self, q, k, v, dcontext, mask, any_order=False, **asked):
        forward, context, lse = self.forward(q, k, v, mask, **asked)
        forward()
        gradients = [torch.full_like(t, math.nan) for t in (q, k, v)]
        inputs, options = [gpu_tensor(t) for t in (q, k, v)], self.options(any_order, **asked)
        tensors = [gpu_tensor(t) for t in (context, lse, dcontext, *gradients)]
        pointers = [ctypes.pointer(t) for t in tensors]
        all_of_it = native.AttendGradients(*pointers[:3], None, *pointers[3:])
        handle = mask.handle if mask else None

        def call():
            self.library.check(self.library.lib.cephalo_attend_backward(
                *(ctypes.byref(t) for t in inputs), handle, ctypes.byref(options), ctypes.byref(all_of_it)))

        call.keeps_alive = (inputs, tensors, options, mask)
        return call, gradients


def milliseconds(call, calls):
    start, end = torch.cuda.Event(True), torch.cuda.Event(True)
    call()
    start.record()
    for _ in range(calls):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / calls


def median(times):
    return sorted(times)[len(times) // 2]


def side_by_side(ours, peer, flops, rounds):
    calls = max(1, min(20, int(2e13 / flops)))
    pairs = [(milliseconds(ours, calls), milliseconds(peer, calls)) for _ in range(rounds + 2)][2:]
    return [median(times) for times in zip(*pairs)]


def difference(ours, theirs):
    return max(((x.double() - y.double()).norm() / y.double().norm()).item() for x, y in zip(ours, theirs))


def report(name, shape, causal, flops, times, error):
    ours, peer = times
    batch, heads, tokens, width = shape
    print(f"| {name} ({batch}, {heads}, {tokens}, {width}) {'causal' if causal else 'full'} "
          f"| {flops / ours / 1e9:.0f} / {flops / peer / 1e9:.0f} | {peer / ours:.3f} | {error:.1e} |", flush=True)


def climbing(q, k):
    """Scores grow by hundreds towards the first key: every block raises the maximum."""
    ramp = torch.linspace(60, 0.1, k.shape[2], device=k.device)[None, None, :, None]
    return q.abs(), (k.abs() * ramp).to(k.dtype)


def bench_shape(ours, shape, dtype, rounds):
    batch, heads, tokens, width = shape
    q, k, v, dcontext = [torch.randn(shape, device="cuda").to(dtype) for _ in range(4)]
    for causal in (False, True):
        mask = ours.causal if causal else None
        flops = 4 * batch * heads * tokens * tokens * width * (0.5 if causal else 1)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            for name, (x, y) in {"forward": (q, k), "forward, climbing scores": climbing(q, k)}.items():
                if name != "forward" and tokens < 16384:
                    continue
                call, context, _ = ours.forward(x, y, v, mask)
                peer = lambda: F.scaled_dot_product_attention(x, y, v, is_causal=causal)
                with torch.no_grad():
                    times = side_by_side(call, peer, flops, rounds)
                    report(name, shape, causal, flops, times, difference([context], [peer()]))
            leaves = [t.clone().requires_grad_() for t in (q, k, v)]
            out = F.scaled_dot_product_attention(*leaves, is_causal=causal)
            peer = lambda: torch.autograd.grad(out, leaves, dcontext, retain_graph=True)
            for name, any_order in {"backward, same bits": False, "backward, any order": True}.items():
                call, gradients = ours.backward(q, k, v, dcontext, mask, any_order)
                times = side_by_side(call, peer, 2.5 * flops, rounds)
                report(name, shape, causal, 2.5 * flops, times, difference(gradients, peer()))


def causal_pair(b, h, i, j):
    return i >= j


def documents_of(tokens):
    """Eight of the same length -> ids [tokens], and what FlexAttention calls mask_mod."""
    ids = torch.arange(tokens) * 8 // tokens
    there = ids.to("cuda")
    return ids, lambda b, h, i, j: (there[i] == there[j]) & (i >= j)


def flex_cases(ours, shape):
    """name, our mask, what is asked of us, mask_mod, score_mod"""
    _, heads, tokens, _ = shape
    slopes = torch.tensor([2 ** (-8 * (h + 1) / heads) for h in range(heads)])
    slopes_there = slopes.to("cuda")
    ids, same_document = documents_of(tokens)
    causal = ("causal", 0)
    yield ("window 1024", ours.mask(causal, ("window", 1023, 0)), {},
           lambda b, h, i, j: (i >= j) & (i - j < 1024), None)
    yield "8 documents, causal", ours.mask(("documents", ids.numpy()), causal), {}, same_document, None
    yield ("alibi, causal", ours.mask(("alibi", slopes.numpy()), causal), {}, causal_pair,
           lambda score, b, h, i, j: score + slopes_there[h] * (j - i))
    yield ("softcap 30, causal", ours.mask(causal), {"softcap": 30.0}, causal_pair,
           lambda score, b, h, i, j: 30.0 * torch.tanh(score / 30.0))


def visible_share(mask_mod, tokens):
    i, j = torch.arange(tokens, device="cuda")[:, None], torch.arange(tokens, device="cuda")[None]
    return mask_mod(0, 0, i, j).double().mean().item()


def bench_flex(ours, shape, dtype, rounds):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    batch, heads, tokens, width = shape
    q, k, v, dcontext = [torch.randn(shape, device="cuda").to(dtype) for _ in range(4)]
    for name, mask, asked, mask_mod, score_mod in flex_cases(ours, shape):
        torch.compiler.reset()
        attend = torch.compile(flex_attention, dynamic=False)
        blocks = create_block_mask(mask_mod, None, None, tokens, tokens, device="cuda")
        flops = 4 * batch * heads * tokens * tokens * width * visible_share(mask_mod, tokens)
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        call, context, _ = ours.forward(q, k, v, mask, **asked)
        peer = lambda: attend(q, k, v, score_mod=score_mod, block_mask=blocks)
        times = side_by_side(call, peer, flops, rounds)
        report_masked("forward", shape, name, flops, times, difference([context], [peer()]))
        out = attend(*leaves, score_mod=score_mod, block_mask=blocks)
        back = lambda: torch.autograd.grad(out, leaves, dcontext, retain_graph=True)
        call, gradients = ours.backward(q, k, v, dcontext, mask, **asked)
        times = side_by_side(call, back, 2.5 * flops, rounds)
        report_masked("backward", shape, name, 2.5 * flops, times, difference(gradients, back()))


def bench_bias_and_dropout(ours, shape, dtype, rounds):
    """A bias tensor beside cuDNN; dropout beside ourselves without."""
    batch, heads, tokens, width = shape
    q, k, v, dcontext = [torch.randn(shape, device="cuda").to(dtype) for _ in range(4)]
    flops = 4 * batch * heads * tokens * tokens * width
    bias = torch.randn(1, heads, tokens, tokens, device="cuda").to(dtype)
    added = ours.mask(("bias", gpu_tensor(bias)))
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        peer = lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        call, context, _ = ours.forward(q, k, v, added)
        times = side_by_side(call, peer, flops, rounds)
        report_masked("forward", shape, "bias [1, heads, q, k]", flops, times, difference([context], [peer()]))
        out = F.scaled_dot_product_attention(*leaves, attn_mask=bias)
        back = lambda: torch.autograd.grad(out, leaves, dcontext, retain_graph=True)
        call, gradients = ours.backward(q, k, v, dcontext, added)
        times = side_by_side(call, back, 2.5 * flops, rounds)
        report_masked("backward", shape, "bias [1, heads, q, k]", 2.5 * flops, times,
                      difference(gradients, back()))
    dropped, plain = (ours.forward(q, k, v, None, dropout=p)[0] for p in (0.1, 0.0))
    report_masked("forward", shape, "dropout 0.1 / ours without", flops,
                  side_by_side(dropped, plain, flops, rounds), math.nan)
    dropped, plain = (ours.backward(q, k, v, dcontext, None, dropout=p)[0] for p in (0.1, 0.0))
    report_masked("backward", shape, "dropout 0.1 / ours without", 2.5 * flops,
                  side_by_side(dropped, plain, 2.5 * flops, rounds), math.nan)


def in_float64(q, k, v, dcontext):
    """context and the gradients of the first head, causal -> four tensors"""
    leaves = [t[:1, :1].double().requires_grad_() for t in (q, k, v)]
    scores = leaves[0] @ leaves[1].transpose(-1, -2) / math.sqrt(q.shape[-1])
    hidden = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
    context = scores.masked_fill(hidden, -math.inf).softmax(-1) @ leaves[2]
    return [context.detach(), *torch.autograd.grad(context, leaves, dcontext[:1, :1].double())]


def bench_float32(ours, shape, rounds):
    batch, heads, tokens, width = shape
    q, k, v, dcontext = [torch.randn(shape, device="cuda") for _ in range(4)]
    flops = 2 * batch * heads * tokens * tokens * width
    exact = in_float64(q, k, v, dcontext)
    first = lambda tensors: [t[:1, :1] for t in tensors]
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    peer = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    out = F.scaled_dot_product_attention(*leaves, is_causal=True)
    back = lambda: torch.autograd.grad(out, leaves, dcontext, retain_graph=True)
    print(f"PyTorch's own differences: {difference(first([peer()]), exact[:1]):.1e} forward, "
          f"{difference(first(back()), exact[1:]):.1e} backward")
    for name, arithmetic in {"exact": EXACT, "bf16x3": BF16X3}.items():
        call, context, _ = ours.forward(q, k, v, ours.causal, arithmetic=arithmetic)
        times = side_by_side(call, peer, flops, rounds)
        report(f"forward, float32, {name}", shape, True, flops, times, difference(first([context]), exact[:1]))
        for order, any_order in {"same bits": False, "any order": True}.items():
            call, gradients = ours.backward(q, k, v, dcontext, ours.causal, any_order, arithmetic=arithmetic)
            times = side_by_side(call, back, 2.5 * flops, rounds)
            report(f"backward, float32, {name}, {order}", shape, True, 2.5 * flops, times,
                   difference(first(gradients), exact[1:]))


def bench_wide(ours, shape, v_width, dtype, rounds):
    batch, heads, tokens, width = shape
    q, k = [torch.randn(shape, device="cuda").to(dtype) for _ in range(2)]
    v, dcontext = [torch.randn(batch, heads, tokens, v_width, device="cuda").to(dtype) for _ in range(2)]
    flops = batch * heads * tokens * tokens * (width + v_width)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    peer = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    call, context, _ = ours.forward(q, k, v, ours.causal)
    report(f"forward, v {v_width}", shape, True, flops, side_by_side(call, peer, flops, rounds),
           difference([context], [peer()]))
    out = F.scaled_dot_product_attention(*leaves, is_causal=True)
    back = lambda: torch.autograd.grad(out, leaves, dcontext, retain_graph=True)
    call, gradients = ours.backward(q, k, v, dcontext, ours.causal)
    report(f"backward, v {v_width}", shape, True, 2.5 * flops, side_by_side(call, back, 2.5 * flops, rounds),
           difference(gradients, back()))


def report_masked(name, shape, mask, flops, times, error):
    ours, peer = times
    print(f"| {name} {shape} {mask} | {flops / ours / 1e9:.0f} / {flops / peer / 1e9:.0f} "
          f"| {peer / ours:.3f} | {error:.1e} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--quick", action="store_true", help="3 rounds of the smaller shapes")
    parser.add_argument("--masks", action="store_true", help="what positions do not say")
    parser.add_argument("--float32", action="store_true", help="beside PyTorch's float32")
    parser.add_argument("--wide", action="store_true", help="head_dim 192 and 256")
    parser.add_argument("--dtype", choices=["bfloat16", "float16"], default="bfloat16")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    ours = Ours(arguments.library)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, "
          f"cuDNN {torch.backends.cudnn.version()}, {'float32' if arguments.float32 else arguments.dtype}")
    print("| (batch, heads, tokens, head_dim) | TFLOP/s: ours / the other | ratio | difference |\n|---|---|---|---|")
    dtype = getattr(torch, arguments.dtype)
    if arguments.masks:
        for shape in SHAPES[2:4]:
            bench_bias_and_dropout(ours, shape, dtype, arguments.rounds)
            bench_flex(ours, shape, dtype, arguments.rounds)
        return
    if arguments.float32:
        bench_float32(ours, (1, 16, 8192, 128), arguments.rounds)
        return
    if arguments.wide:
        bench_wide(ours, (4, 16, 4096, 256), 256, dtype, arguments.rounds)
        bench_wide(ours, (4, 16, 4096, 192), 128, dtype, arguments.rounds)
        return
    for shape in SHAPES[2:] if arguments.quick else SHAPES:
        bench_shape(ours, shape, dtype, 3 if arguments.quick else arguments.rounds)


if __name__ == "__main__":
    main()
