"""Attention over torch.distributed: two and three gloo processes give what one does; DDP and FSDP hold our layers."""

import os
import tempfile

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import cephalo
import cephalo.torch as ct
from cephalo.torch import ring

TOKENS = 37


def start(rank, size, path):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)


def run(size, body, *arguments):
    """body(rank, size, *arguments) in so many processes with a group."""
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(_enter, (size, os.path.join(folder, "meet"), body, arguments), size, start_method="fork")


def _enter(rank, size, path, body, arguments):
    start(rank, size, path)
    try:
        body(rank, size, *arguments)
    finally:
        dist.destroy_process_group()


def tensors(dtype=torch.float64):
    torch.manual_seed(3)
    q = torch.randn(2, 4, TOKENS, 8, dtype=dtype)
    k, v = (torch.randn(2, 2, TOKENS, 8, dtype=dtype) for _ in range(2))
    return q, k, v, torch.randn(2, 4, TOKENS, 8, dtype=dtype)


def with_gradients(q, k, v):
    return [t.clone().requires_grad_() for t in (q, k, v)]


def equals_one_process(rank, size, masks):
    q, k, v, dcontext = tensors()
    for of_rows in masks:
        whole = with_gradients(q, k, v)
        context = ct.attend(*whole, mask=of_rows(lambda t: t))
        context.backward(dcontext)
        own = with_gradients(*(ring.split_tokens(t, 2) for t in (q, k, v)))
        found = ring.attend_ring(*own, TOKENS, mask=of_rows(lambda t: ring.split_tokens(t, -2)))
        found.backward(ring.split_tokens(dcontext, 2))
        torch.testing.assert_close(ring.join_tokens(found, 2, TOKENS), context.detach(), rtol=0, atol=1e-13)
        for mine, theirs in zip(own, whole):
            torch.testing.assert_close(mine.grad, ring.split_tokens(theirs.grad, 2), rtol=0, atol=1e-13)


def causal(rows):
    return cephalo.causal()


def window(rows):
    return cephalo.causal() & cephalo.window(9, 0)


def kept(rows):
    torch.manual_seed(5)
    return ct.keep(rows(torch.rand(TOKENS, TOKENS) < 0.7)) & cephalo.causal()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_ring_gives_context_and_gradients_of_one_process(size):
    run(size, equals_one_process, (causal, window, kept))


def bias_is_summed(rank, size):
    q, k, v, dcontext = tensors()
    torch.manual_seed(7)
    row = torch.randn(4, 1, TOKENS, dtype=torch.float64)  # one row for all queries
    whole = row.clone().requires_grad_()
    ct.attend(q, k, v, mask=ct.bias(whole)).backward(dcontext)
    own = row.clone().requires_grad_()
    mine = [ring.split_tokens(t, 2) for t in (q, k, v)]
    ring.attend_ring(*mine, TOKENS, mask=ct.bias(own)).backward(ring.split_tokens(dcontext, 2))
    torch.testing.assert_close(own.grad, whole.grad, rtol=0, atol=1e-13)


def test_the_gradient_of_a_bias_for_all_queries_is_summed_over_processes():
    run(2, bias_is_summed)


def drops_the_same_pairs(rank, size):
    q, k, v, _ = tensors()
    mine = [ring.split_tokens(t, 2) for t in (q, k, v)]
    torch.manual_seed(11 + rank)  # the first process's generator counts
    found = ring.join_tokens(ring.attend_ring(*mine, TOKENS, cephalo.causal(), dropout=0.4), 2, TOKENS)
    torch.manual_seed(11)
    seed = int(torch.randint(2**62, ()))
    expected = cephalo.attend(q, k, v, cephalo.causal(), dropout=0.4, seed=seed)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


def test_dropout_drops_the_pairs_that_one_process_drops():
    run(3, drops_the_same_pairs)


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.into = torch.nn.Linear(16, 48)
        self.out = torch.nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, 4)).transpose(1, 2) for t in self.into(x).chunk(3, -1))
        return self.out(ct.attend(q, k, v, mask=cephalo.causal()).transpose(1, 2).flatten(2))


def steps(wrap, rank, size):
    """The loss after three steps on halves of a batch; wrap: how processes share the model."""
    torch.manual_seed(1)
    model = wrap(Small())
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(2)
    x, y = torch.randn(6, 10, 16), torch.randn(6, 10, 16)
    rows = slice(rank * 6 // size, (rank + 1) * 6 // size)
    for _ in range(3):
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(model(x[rows]), y[rows]).backward()
        optimiser.step()
    with torch.no_grad():
        return torch.nn.functional.mse_loss(model(x), y)


def in_parallel(rank, size, wrap, expected):
    loss = steps(wrap, rank, size)
    torch.testing.assert_close(loss, torch.tensor(expected), rtol=1e-5, atol=0)


def distributed(model):
    return torch.nn.parallel.DistributedDataParallel(model)


def fully_sharded(model):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh
    return fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


@pytest.mark.parametrize("wrap", [distributed, fully_sharded])
def test_our_attention_trains_inside(wrap):
    run(2, in_parallel, wrap, float(steps(lambda model: model, 0, 1)))
