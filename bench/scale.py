#!/usr/bin/env python3
"""Processes and threads of one machine, group by group, as lines of JSON.

    cmake --preset mpi -DCEPHALO_BUILD_BENCH=ON && cmake --build build/mpi --target scale
    python bench/scale.py build/mpi/bench/scale costs train ring long --cores 16

costs: what one process computes and what a message costs, which docs/scale.md counts with
train: the built-in recipe, processes x threads; PyTorch's DistributedDataParallel over gloo
ring: attention of (1, 8, 131072, 64), causal; PyTorch's over gloo; 1 to 16 processes of one thread
long: forward (1, 1, 1048576, 64), causal, and a step of training of 1,048,576 tokens under a window
Each row has a time limit of its own, and a row that fails is a line that says so. --small tries all of
them in sizes for a few seconds.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}


class Bench:
    def __init__(self, options):
        self.options = options

    def run(self, command, limit):
        try:
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                                  timeout=limit, env={**os.environ, **MPI})
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            if done.returncode == 0 and lines:
                print(lines[-1], flush=True)
                return
            reason = (done.stderr or done.stdout).strip()[-300:]
        except subprocess.TimeoutExpired:
            reason = f"more than {limit} s"
        print(json.dumps({"failed": " ".join(map(str, command[1:])), "reason": reason}), flush=True)

    def ours(self, processes, *words, limit=60):
        before = ["mpirun", "-n", processes] if processes > 1 else []
        self.run([*before, self.options.program, *words], limit)

    def torch(self, row, processes, threads, *words, limit=120):
        if not self.options.torch:
            return
        self.run([self.options.torch, HERE / "scale_torch.py", row, "--processes", processes,
                  "--threads", threads, *words], limit)

    def sizes(self):
        """1, 2, 4, … processes of one thread."""
        return [2 ** n for n in range(self.options.cores.bit_length())]

    def costs(self):
        for processes in self.sizes():
            self.ours(processes, "costs", 1)

    def train(self):
        cores, small = self.options.cores, self.options.small
        batch, steps = (16, 2) if small else (64, 6)
        quarter = max(1, cores // 4)
        for _ in range(1 if small else 2):  # in turns
            self.ours(1, "train", cores, batch, 16, steps)
            self.ours(1, "train", cores, batch, 1, steps)
            self.ours(cores, "train", 1, batch, 16, steps)
            self.ours(quarter, "train", cores // quarter, batch, 16, steps)
        for processes, threads in ((cores, 1), (quarter, cores // quarter), (1, cores)):
            self.torch("ddp", processes, threads, "--batch", batch, "--steps", steps)

    def train_scaling(self):
        for processes in self.sizes():
            self.ours(processes, "train", 1, 16, 16, 2 if self.options.small else 3)

    def ring(self):
        cores, small = self.options.cores, self.options.small
        tokens = 4096 if small else 131072
        quarter = max(1, cores // 4)
        for _ in range(2):  # in turns
            self.ours(1, "attend", cores, 8, tokens, 1)
            self.ours(cores, "account", 1, 8, tokens, 1)
        self.ours(cores, "account", 1, 8, tokens, 1, "alone")
        self.ours(quarter, "attend", cores // quarter, 8, tokens, 1)
        self.torch("ring", cores, 1, "--tokens", tokens)

    def ring_scaling(self):
        tokens = 2048 if self.options.small else 16384
        for processes in self.sizes():
            self.ours(processes, "attend", 1, 8, tokens, 2, "backward")
        self.ours(min(8, self.options.cores), "attend", 1, 8, tokens, 1, "heads")

    def long(self):
        cores, small = self.options.cores, self.options.small
        self.ours(cores, "step", 1, 16384 if small else 1 << 20, limit=150)
        self.ours(cores, "attend", 1, 1, 16384 if small else 1 << 20, 1, limit=240)


def main():
    groups = ("costs", "train", "train_scaling", "ring", "ring_scaling", "long")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="build/mpi/bench/scale")
    parser.add_argument("groups", nargs="+", choices=groups)
    parser.add_argument("--cores", type=int, default=16)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--torch", default=sys.executable, help="a Python with PyTorch; empty: none")
    options = parser.parse_args()
    bench = Bench(options)
    for group in options.groups:
        getattr(bench, group)()


if __name__ == "__main__":
    main()
