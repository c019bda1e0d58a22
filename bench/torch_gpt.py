#!/usr/bin/env python3
"""Training a GPT in PyTorch with its attention function or ours: the losses side by side, and steps a second.

    python bench/torch_gpt.py --steps 60 --tokens 256

Two copies of one model, written as nanoGPT's is (one Linear for q, k and v, GELU, tied head), see the same
batches of characters of this project's documents. Their steps take turns, so that a busy neighbour slows
both. In float32 and under torch.autocast(bfloat16), which computes products and attention in 16 bits.
"""

import argparse
import copy
import pathlib
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

from cephalo.torch import scaled_dot_product_attention

ROOT = pathlib.Path(__file__).resolve().parents[1]
ATTENTIONS = {"PyTorch": F.scaled_dot_product_attention, "cephalo": scaled_dot_product_attention}


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn, self.c_proj, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x, attend):
        """[batch, tokens, width] -> the same"""
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.c_attn(x).chunk(3, -1))
        return self.c_proj(attend(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, attend):
        x = x + self.attn(self.ln_1(x), attend)
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary, tokens, width=128, heads=4, layers=4):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.h, self.ln_f = nn.ModuleList(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width)
        nn.init.normal_(self.wte.weight, std=0.02)

    def forward(self, ids, attend):
        """[batch, tokens] -> logits [batch, tokens, vocabulary]"""
        x = self.wte(ids) + self.wpe.weight[:ids.shape[1]]
        for block in self.h:
            x = block(x, attend)
        return self.ln_f(x) @ self.wte.weight.T


class Run:
    def __init__(self, name, model):
        self.attend, self.model = ATTENTIONS[name], copy.deepcopy(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, betas=(0.9, 0.99))
        self.losses, self.seconds = [], []

    def step(self, rows, autocast):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = self.model(rows[:, :-1], self.attend)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - begin)
        self.losses.append(loss.item())


def characters():
    text = "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
    number = {c: n for n, c in enumerate(sorted(set(text)))}
    return torch.tensor([number[c] for c in text]), len(number)


def compare(autocast, steps, tokens, batch):
    """-> name -> Run"""
    torch.manual_seed(1337)
    ids, vocabulary = characters()
    model = Gpt(vocabulary, tokens)
    runs = {name: Run(name, model) for name in ATTENTIONS}
    for _ in range(steps):
        begins = torch.randint(len(ids) - tokens - 1, (batch,))
        rows = torch.stack([ids[b:b + tokens + 1] for b in begins])
        for run in runs.values():
            run.step(rows, autocast)
    return runs


def report(title, runs):
    shown = sorted({0, 9, 19, 29, 39, 49, len(runs["PyTorch"].losses) - 1} &
                   set(range(len(runs["PyTorch"].losses))))
    print(f"{title}\n  step     " + "".join(f"{n + 1:>9}" for n in shown))
    for name, run in runs.items():
        rate = 1 / statistics.median(run.seconds)
        print(f"  {name:<8} " + "".join(f"{run.losses[n]:9.4f}" for n in shown) + f"   {rate:.2f} steps/s")
    theirs, ours = runs.values()
    apart = max(abs(a - b) for a, b in zip(theirs.losses, ours.losses))
    ratio = statistics.median(a / b for a, b in zip(theirs.seconds, ours.seconds))
    print(f"  losses at most {apart:.1e} apart; cephalo {ratio:.2f} x as fast")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    arguments = parser.parse_args()
    for title, autocast in (("float32", False), ("autocast to bfloat16", True)):
        report(title, compare(autocast, arguments.steps, arguments.tokens, arguments.batch))


if __name__ == "__main__":
    main()
