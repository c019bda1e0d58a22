"""One call on (1, 12, 16, 64) tensors: from C++, from Python, and PyTorch's SDPA, medians of 1,000.

    PYTHONPATH=build/release/python .venv/bin/python bench/call_cost.py

Rounds alternate the three; the quickest median of each counts. Also how many cores two Python
threads keep busy, each with threads=1.
"""

import os
import statistics
import subprocess
import threading
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

import cephalo

ROUNDS = 7
FROM_CPP = "build/release/bench/call_cost"


def median_us(call):
    times = []
    for _ in range(1000):
        begin = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - begin)
    return statistics.median(times) / 1e3


def busy_cores():
    """CPU time / wall time of two threads that call attend."""
    q = torch.randn(8, 512, 64)
    work = [threading.Thread(target=lambda: [cephalo.attend(q, q, q, threads=1) for _ in range(100)])
            for _ in range(2)]
    wall, cpu = time.perf_counter(), sum(os.times()[:2])
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    return (sum(os.times()[:2]) - cpu) / (time.perf_counter() - wall)


def main():
    torch.set_num_threads(2)
    q = torch.randn(1, 12, 16, 64)
    rounds = []
    for _ in range(ROUNDS):
        cpp = float(subprocess.run([FROM_CPP], capture_output=True, text=True, check=True).stdout)
        ours = median_us(lambda: cephalo.attend(q, q, q))
        theirs = median_us(lambda: scaled_dot_product_attention(q, q, q))
        rounds.append((cpp, ours, theirs))
        print(f"C++ {cpp:5.1f} us   Python {ours:5.1f} us   SDPA {theirs:5.1f} us")
    cpp, ours, theirs = (min(column) for column in zip(*rounds))
    print(f"beyond C++ {ours - cpp:.1f} us, of SDPA {ours / theirs:.2f}; "
          f"two Python threads keep {max(busy_cores() for _ in range(3)):.2f} cores busy")


main()
