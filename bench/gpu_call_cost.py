"""What a call on a GPU costs the host, beside PyTorch's own function.

    PYTHONPATH=build/cuda/python python bench/gpu_call_cost.py

Tensors are small, so that the GPU keeps up: 20 calls are queued without waiting, and the clock stops when the last has
returned. Contestants take turns; medians over 101 rounds, in microseconds a call. Backward is the whole of
torch.autograd.grad for one call of attention: most of it is autograd's own, which hands over to another thread.
"""

import time

import torch
import torch.nn.functional as F

import cephalo
import cephalo.torch

SHAPE = (1, 8, 128, 64)
CALLS, ROUNDS = 20, 101


def cost(call):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    cost = (time.perf_counter() - begin) / CALLS * 1e6
    torch.cuda.synchronize()
    return cost


def cost_of_backward(function, leaves, gradient):
    """Graphs are there before the clock starts."""
    results = [function(*leaves) for _ in range(CALLS)]
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for result in results:
        torch.autograd.grad(result, leaves, gradient)
    cost = (time.perf_counter() - begin) / CALLS * 1e6
    torch.cuda.synchronize()
    return cost


def contestants():
    """name -> a function that returns the cost of one call"""
    q, k, v, gradient = (torch.randn(SHAPE, device="cuda").bfloat16() for _ in range(4))
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    causal, causal_plain = cephalo.torch.causal(), cephalo.causal()
    filled = torch.tensor([100], device="cuda")
    ends = torch.tensor([0, 50, 128], dtype=torch.int32, device="cuda")
    packed = [t[0].transpose(0, 1).contiguous() for t in (q, k, v)]

    def ours(*tensors):
        return cephalo.torch.attend(*tensors, causal)

    def theirs(*tensors):
        return F.scaled_dot_product_attention(*tensors, is_causal=True)

    return {
        "cephalo.attend": lambda: cost(lambda: cephalo.attend(q, k, v, causal_plain)),
        "cephalo.torch.attend": lambda: cost(lambda: ours(q, k, v)),
        "cephalo.torch.scaled_dot_product_attention": lambda: cost(
            lambda: cephalo.torch.scaled_dot_product_attention(q, k, v, is_causal=True)),
        "cephalo.torch.attend, to be differentiated": lambda: cost(lambda: ours(*leaves)),
        "backward of that": lambda: cost_of_backward(ours, leaves, gradient),
        "cephalo.torch.attend, lengths on the GPU": lambda: cost(
            lambda: cephalo.torch.attend(q, k, v, cephalo.torch.lengths(filled))),
        "cephalo.torch.attend, packed": lambda: cost(
            lambda: cephalo.torch.attend(*packed, causal, cu_seqlens=ends)),
        "PyTorch's scaled_dot_product_attention": lambda: cost(lambda: theirs(q, k, v)),
        "the same, to be differentiated": lambda: cost(lambda: theirs(*leaves)),
        "backward of that, PyTorch's": lambda: cost_of_backward(theirs, leaves, gradient),
    }


def main():
    torch.manual_seed(0)
    calls = contestants()
    rounds = [{name: call() for name, call in calls.items()} for _ in range(ROUNDS + 2)][2:]
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, bfloat16 {SHAPE}, causal")
    print("| | µs a call |\n|---|---|")
    for name in calls:
        print(f"| {name} | {sorted(each[name] for each in rounds)[ROUNDS // 2]:.1f} |")


if __name__ == "__main__":
    main()
