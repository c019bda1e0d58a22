#!/usr/bin/env python3
"""PyTorch's side of scale.py, over gloo: one line of JSON.

    python bench/scale_torch.py ddp  --processes 16 --threads 1 --batch 64 --steps 5
    python bench/scale_torch.py ring --processes 16 --threads 1 --heads 8 --tokens 131072

ddp: DistributedDataParallel around the model of the built-in recipe, AdamW, norm clipped at 1.
ring: keys and values go round while the ones at hand are attended to by PyTorch's fused attention; each
process has an early and a late piece, pieces that causal hides are left out, and results join by lse.
That is cephalo's schedule: the plain ring of neighbouring rows would take the last process twice as long.
"""

import argparse
import json
import os
import resource
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
import torch.nn.functional as F
from torch import nn

VOCABULARY, TOKENS, WIDTH, HEADS, LAYERS = 4096, 256, 256, 8, 4


def turned(t, cosine, sine):
    x, y = t.chunk(2, -1)
    return torch.cat((x * cosine - y * sine, x * sine + y * cosine), -1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, cosine, sine):
        shape = (x.shape[0], x.shape[1], HEADS, WIDTH // HEADS)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(self.ln_1(x)).chunk(3, -1))
        context = F.scaled_dot_product_attention(turned(q, cosine, sine), turned(k, cosine, sine), v,
                                                 is_causal=True)
        x = x + self.proj(context.transpose(1, 2).reshape(x.shape))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks, self.ln_f = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
        half = WIDTH // HEADS // 2
        angles = torch.arange(TOKENS)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())
        nn.init.normal_(self.wte.weight, std=0.02)

    def forward(self, ids):
        x = self.wte(ids)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return self.ln_f(x) @ self.wte.weight.T


def timed(work):
    """Seconds of the slowest process, from a moment at which all are there."""
    dist.barrier()
    begin = time.perf_counter()
    work()
    slowest = torch.tensor(time.perf_counter() - begin, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def run_ddp(options):
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(Gpt())
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4)
    rows = options.batch // dist.get_world_size()
    ids = torch.randint(0, VOCABULARY, (rows, TOKENS))
    targets = torch.randint(0, VOCABULARY, (rows * TOKENS,))

    def step():
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(model(ids).view(rows * TOKENS, -1), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    timed(step)
    seconds = [timed(step) for _ in range(options.steps)]
    return {"batch": options.batch, "seconds": seconds,
            "tokens_per_second": options.batch * TOKENS / min(seconds)}


def attended(q, k, v, causal):
    """-> context and lse, [1, heads, tokens, 64] and [1, heads, tokens]"""
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)


def join(sums, context, lse, rows):
    """Rows of what was found so far, joined with what more keys give them."""
    old = sums[1][:, :, rows]
    both = torch.logaddexp(old, lse)
    sums[0][:, :, rows] = (sums[0][:, :, rows] * (old - both).exp().unsqueeze(-1)
                           + context * (lse - both).exp().unsqueeze(-1))
    sums[1][:, :, rows] = both


def ring_pass(q, k, v):
    """Each process has piece rank and piece 2 size - 1 - rank, in this order."""
    rank, size, half = dist.get_rank(), dist.get_world_size(), q.shape[2] // 2
    sums = [torch.zeros_like(q), torch.full(q.shape[:3], -torch.inf)]
    here = torch.cat((k, v))
    for step in range(size):
        owner = (rank - step) % size
        moving = []
        if step + 1 < size:
            coming = torch.empty_like(here)
            moving = [dist.isend(here, (rank + 1) % size), dist.irecv(coming, (rank - 1) % size)]
        for q_half, q_piece in enumerate((rank, 2 * size - 1 - rank)):
            rows = slice(q_half * half, (q_half + 1) * half)
            for kv_half, kv_piece in enumerate((owner, 2 * size - 1 - owner)):
                if kv_piece > q_piece:
                    continue
                keys = slice(kv_half * half, (kv_half + 1) * half)
                context, lse = attended(q[:, :, rows], here[:1, :, keys], here[1:, :, keys],
                                        kv_piece == q_piece)
                join(sums, context, lse, rows)
        for each in moving:
            each.wait()
        if moving:
            here = coming
    return sums


def run_ring(options):
    torch.manual_seed(dist.get_rank())
    shape = (1, options.heads, options.tokens // dist.get_world_size(), 64)
    q, k, v = (torch.randn(shape) for _ in range(3))
    with torch.no_grad():
        seconds = [timed(lambda: ring_pass(q, k, v)) for _ in range(options.steps)]
    return {"heads": options.heads, "tokens": options.tokens, "seconds": seconds}


RUNS = {"ddp": run_ddp, "ring": run_ring}


def work(rank, options, meeting):
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=options.processes)
    figures = RUNS[options.row](options)
    if rank == 0:
        print(json.dumps({"row": f"torch {options.row}", "processes": options.processes,
                          "threads": options.threads, **figures, "torch": torch.__version__,
                          "peak": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}),
              flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("row", choices=RUNS)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=131072)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(work, (options, os.path.join(folder, "meeting")), options.processes)


if __name__ == "__main__":
    main()
