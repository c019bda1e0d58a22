#!/usr/bin/env python3
"""Runs a rung in PyTorch and in cephalo from the same seed and prints how far they are apart.

    compare_torch.py --rung 5 --seed 123 --d-in 768 --d-out 768 --num-heads 12
    compare_torch.py --all          every rung, size, seed and dropout that is promised

Needs PyTorch (pip install torch) and a built cephalo (make build).
"""

import argparse
import json
import pathlib
import subprocess
import sys

import torch
from torch import nn

import ladder_torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = "The cat sat on the mat"
BOUND = 1e-6


def torch_run(a):
    """Embeddings, layer and dropout drawn from one stream, as cephalo trace draws them."""
    torch.manual_seed(a.seed)
    words = a.text.split()
    vocabulary = sorted(set(words))
    ids = torch.tensor([[vocabulary.index(word) for word in words]])
    token = nn.Embedding(len(vocabulary), a.d_in)
    position = nn.Embedding(a.context_length, a.d_in)
    layer = ladder_torch.build(a.rung, a.d_in, a.d_out, a.num_heads, a.context_length, a.dropout,
                               a.qkv_bias, a.form == "raw")
    x = token(ids) + position(torch.arange(len(words)))
    layer.train(a.dropout > 0)
    with torch.no_grad():
        return x.detach(), layer, layer(x)


def cephalo_run(a):
    command = [str(a.cephalo), "trace", "--json", "--parameters", "--text", a.text,
               "--rung", str(a.rung), "--seed", str(a.seed), "--d-in", str(a.d_in),
               "--d-out", str(a.d_out), "--context-length", str(a.context_length)]
    if a.rung >= 4:
        command += ["--num-heads", str(a.num_heads)]
    if a.dropout > 0:
        command += ["--dropout", str(a.dropout), "--dropout-stream", "torch", "--train"]
    if a.qkv_bias:
        command += ["--qkv-bias"]
    if a.rung == 2:
        command += ["--form", a.form]
    trace = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    steps = {step["key"]: step["value"] for step in trace["steps"]}
    return steps, trace["parameters"]


def differing_bits(a, b):
    return int((a.contiguous().view(torch.int32) != b.contiguous().view(torch.int32)).sum())


def compare(a):
    x, layer, expected = torch_run(a)
    steps, parameters = cephalo_run(a)
    ours = torch.tensor(steps["output"] if "output" in steps else steps["context"])
    bits = differing_bits(x, torch.tensor(steps["x"]))
    names = dict(layer.named_parameters())
    assert set(names) == set(parameters), f"{sorted(names)} != {sorted(parameters)}"
    for name, value in names.items():
        bits += differing_bits(value.detach(), torch.tensor(parameters[name]))
    difference = (ours - expected).abs().max().item()
    bound = BOUND * max(1.0, expected.abs().max().item())
    good = difference <= bound and bits == 0
    print(f"rung {a.rung}  {a.d_in:>4} -> {a.d_out:<4} heads {a.num_heads:<2} seed {a.seed:<10} "
          f"dropout {a.dropout:<3}  difference {difference:.1e} (bound {bound:.1e})  "
          f"differing bits {bits}  {'ok' if good else 'TOO FAR'}", flush=True)
    return good


def promised():
    """(rung, d_in, d_out, num_heads, dropout) of everything that must agree."""
    for rung in range(2, 8):
        for d_in, d_out, heads in ((3, 2, 1), (64, 64, 4), (768, 768, 12), (1024, 512, 8)):
            if rung >= 6:
                d_in = d_out = max(d_in, d_out) if d_in != 3 else 2
            for dropout in ((0.0, 0.1) if rung in (3, 4, 5) else (0.0,)):
                yield rung, d_in, (d_out // heads if rung == 4 else d_out), heads, dropout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="everything that is promised")
    parser.add_argument("--rung", type=int, default=5)
    parser.add_argument("--seed", type=int, default=123)
    parser.add_argument("--d-in", type=int, default=768)
    parser.add_argument("--d-out", type=int, default=768, help="in rung 4 of one head")
    parser.add_argument("--num-heads", type=int, default=12)
    parser.add_argument("--context-length", type=int, default=1024)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--qkv-bias", action="store_true")
    parser.add_argument("--form", default="separate", choices=["separate", "raw"])
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--cephalo", default=ROOT / "build/release/cli/cephalo")
    a = parser.parse_args()
    print(f"PyTorch {torch.__version__}")
    if not a.all:
        return 0 if compare(a) else 1
    results = []
    for a.rung, a.d_in, a.d_out, a.num_heads, a.dropout in promised():
        for a.seed in (0, 123, 4294967295):
            results.append(compare(a))
    print(f"{sum(results)} of {len(results)} agree")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
