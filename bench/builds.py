#!/usr/bin/env python3
"""Two builds of cephalo side by side: did a change that should cost nothing cost something?

    cmake --preset shared && cmake --build build/shared     in each of two trees, then
    builds.py OLD/libcephalo.so NEW/libcephalo.so           all rows, one and two threads

Both libraries are loaded into one process and take turns on the same arrays, because this quarter
of an hour of a shared machine is not like the next. A ratio is the old time by the new one: below 1,
the new build is slower. Columns: best call of all rounds, median over rounds of the ratio, and the
quarter and three-quarter points of those ratios. Results must be equal bit by bit first.

Needs numpy.
"""

import argparse
import statistics

import numpy as np

import native
import timing


def attend(library, rng, sizes, parts, threads):
    batch, num_heads, q_tokens, kv_tokens, head_dim = sizes
    q = rng.standard_normal((batch, num_heads, q_tokens, head_dim), dtype=np.float32)
    k, v = rng.standard_normal((2, batch, num_heads, kv_tokens, head_dim), dtype=np.float32)
    return library.attend(q, k, v, native.Mask(library, parts), threads)


def backward(library, rng, sizes, parts, threads):
    batch, num_heads, tokens, _, head_dim = sizes
    q, k, v, dcontext = rng.standard_normal((4, batch, num_heads, tokens, head_dim), dtype=np.float32)
    return library.attend_backward(q, k, v, dcontext, native.Mask(library, parts), threads)


def parameters(rng, width):
    names = ("W_query.weight", "W_key.weight", "W_value.weight", "out_proj.weight", "out_proj.bias")
    shapes = [(width, width)] * 4 + [(width,)]
    return {name: rng.standard_normal(shape, dtype=np.float32) / width ** 0.5
            for name, shape in zip(names, shapes)}


def layer(library, rng, sizes, parts, threads):
    batch, num_heads, tokens, _, head_dim = sizes
    width = num_heads * head_dim
    x = rng.standard_normal((batch, tokens, width), dtype=np.float32)
    return native.Layer(library, width, num_heads, parameters(rng, width)).forward(x, threads)


def layer_backward(library, rng, sizes, parts, threads):
    batch, num_heads, tokens, _, head_dim = sizes
    width = num_heads * head_dim
    x, dy = rng.standard_normal((2, batch, tokens, width), dtype=np.float32)
    made = native.Layer(library, width, num_heads, parameters(rng, width))
    return made.forward_backward(x, dy, threads)


CAUSAL = [("causal", 0)]
ROWS = {
    "attend causal": (attend, (1, 12, 1024, 1024, 64), CAUSAL),
    "attend full": (attend, (1, 12, 1024, 1024, 64), []),
    "attend causal, head_dim 128": (attend, (1, 8, 1024, 1024, 128), CAUSAL),
    "attend window": (attend, (1, 12, 4096, 4096, 64), [("window", 255, 0)]),
    "attend 16 tokens": (attend, (1, 12, 16, 16, 64), CAUSAL),
    "decode": (attend, (1, 12, 1, 4096, 64), []),
    "decode 16 sequences": (attend, (16, 12, 1, 4096, 64), []),
    "backward causal": (backward, (1, 12, 1024, 1024, 64), CAUSAL),
    "layer": (layer, (1, 12, 1024, 1024, 64), []),
    "layer, there and back": (layer_backward, (1, 12, 512, 512, 64), []),
}


def same(first, second):
    """Of arrays, or of lists of them."""
    if isinstance(first, list):
        return all(same(a, b) for a, b in zip(first, second, strict=True))
    return np.array_equal(first, second)


def results(call):
    return getattr(call, "results", call)()


def measure(libraries, make, sizes, parts, threads, rounds):
    calls = {name: make(library, np.random.default_rng(0), sizes, parts, threads)
             for name, library in libraries.items()}
    equal = same(results(calls["old"]), results(calls["new"]))
    times = timing.alternate(calls, rounds)
    ratios = [old / new for old, new in zip(times["old"], times["new"])]
    quarters = statistics.quantiles(ratios, n=4)
    return equal, 1e3 * min(times["old"]), 1e3 * min(times["new"]), quarters


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rows", nargs="*", default=[], metavar="WORD",
                        help="only rows whose name holds one of these words")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=41)
    options = parser.parse_args()
    libraries = {"old": native.Cephalo(options.old), "new": native.Cephalo(options.new)}
    print(f"{'':30} threads   old ms   new ms   best  median  quarters")
    for name, (make, sizes, parts) in ROWS.items():
        if options.rows and not any(word in name for word in options.rows):
            continue
        for threads in map(int, options.threads.split(",")):
            equal, old, new, (low, middle, high) = measure(libraries, make, sizes, parts, threads,
                                                           options.rounds)
            print(f"{name:30} {threads:7} {old:8.3f} {new:8.3f}  {old / new:5.3f}  {middle:6.3f}"
                  f"  {low:.3f} {high:.3f}{'' if equal else '  results differ'}", flush=True)


if __name__ == "__main__":
    main()
