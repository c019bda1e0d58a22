#!/usr/bin/env python3
"""Training speed beside PyTorch: the same small GPT, batch and number of threads.

    cmake --preset release -DCEPHALO_BUILD_BENCH=ON && cmake --build build/release --target train_step
    python bench/train_speed.py build/release/bench/train_step --batch 16 64

One step is forward, backward and AdamW: 4 layers of 8 heads, d_model 256, MLP 4 x, vocabulary 4096,
learned positions, the head tied to the token embedding. PyTorch runs eager, with its fused
attention. Each library has a process of its own, so that the peaks of memory are its own; they take
turns, one untimed step and some timed ones a turn, and wait for input in between.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

SIZES = {"vocab_size": 4096, "d_model": 256, "num_heads": 8, "num_layers": 4}
TIMED_STEPS = 3


def torch_worker(batch, tokens, threads, rotary):
    """The same conversation as train_step.cc has."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    width, heads = SIZES["d_model"], SIZES["num_heads"]
    head_dim = width // heads
    angles = torch.arange(tokens)[:, None] * 10000.0 ** (-torch.arange(head_dim // 2) / (head_dim // 2))
    cosine, sine = angles.cos(), angles.sin()

    def turned(t):
        x, y = t.chunk(2, -1)
        return torch.cat((x * cosine - y * sine, x * sine + y * cosine), -1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            shape = (x.shape[0], x.shape[1], heads, head_dim)
            q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(self.ln_1(x)).chunk(3, -1))
            if rotary:
                q, k = turned(q), turned(k)
            context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(context.transpose(1, 2).reshape(x.shape))
            return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(SIZES["vocab_size"], width)
            self.wpe = nn.Embedding(tokens, width)
            self.blocks = nn.ModuleList(Block() for _ in range(SIZES["num_layers"]))
            self.ln_f = nn.LayerNorm(width)
            self.apply(self.start)

        @staticmethod
        def start(module):
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

        def forward(self, ids):
            x = self.wte(ids) if rotary else self.wte(ids) + self.wpe.weight
            for block in self.blocks:
                x = block(x)
            return self.ln_f(x) @ self.wte.weight.T

    model = Gpt()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4)
    ids = torch.randint(0, SIZES["vocab_size"], (batch, tokens))
    targets = torch.randint(0, SIZES["vocab_size"], (batch * tokens,))
    loss = None
    for line in sys.stdin:
        for _ in range(int(line)):
            begin = time.perf_counter()
            optimiser.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(ids).view(batch * tokens, -1), targets)
            loss.backward()
            optimiser.step()
            print(time.perf_counter() - begin, end=" ")
        print(flush=True)
    print(loss.item(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


class Worker:
    def __init__(self, command, threads):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)})

    def steps(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return [float(word) for word in self.process.stdout.readline().split()]

    def finish(self):
        rest = self.process.communicate()[0]
        loss, mebibytes = map(float, rest.split())
        return loss, mebibytes


def compare(options, batch):
    words = [str(batch), str(options.tokens), str(options.threads)]
    words += ["rotary"] if options.rotary else []
    workers = {"cephalo": Worker([options.program, *words], options.threads),
               "PyTorch": Worker([sys.executable, __file__, "--worker", *words], options.threads)}
    best = {name: [] for name in workers}
    for worker in workers.values():
        worker.steps(1)  # memory is there afterwards
    for _ in range(options.rounds):
        for name, worker in workers.items():
            worker.steps(1)
            best[name].append(min(worker.steps(TIMED_STEPS)))
    tokens = batch * options.tokens
    ends = {name: worker.finish() for name, worker in workers.items()}
    for name, times in best.items():
        loss, mebibytes = ends[name]
        print(f"batch {batch:3} x {options.tokens}  {name:8} {tokens / min(times):8.0f} tokens/s  "
              f"best step {1e3 * min(times):7.1f} ms  peak {mebibytes:6.0f} MiB  loss {loss:.3f}")
    ratios = [p / c for c, p in zip(best["cephalo"], best["PyTorch"])]
    print(f"batch {batch:3} x {options.tokens}  cephalo is {min(best['PyTorch']) / min(best['cephalo']):.2f} x "
          f"PyTorch by the best steps, {statistics.median(ratios):.2f} x by the median of "
          f"{len(ratios)} rounds", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?", help="train_step")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rotary", action="store_true")
    options = parser.parse_args()
    if options.worker:
        batch, tokens, threads = map(int, options.worker[:3])
        torch_worker(batch, tokens, threads, "rotary" in options.worker)
        return
    for batch in options.batch:
        compare(options, batch)


if __name__ == "__main__":
    main()
