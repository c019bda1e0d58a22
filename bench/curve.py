"""One point of the curve that peers.py --curve draws: causal, 12 heads of 64, one sequence.

    curve.py memory LIBRARY --tokens N …      peak memory of one call, in a fresh process
    curve.py time LIBRARY LIBRARY … --tokens N …    all of them, alternating
"""

import argparse
import ctypes
import json
import resource

import numpy as np
import torch

import layers
import native
import timing
import worker

HEADS, HEAD_DIM = 12, 64
WIDTH = HEADS * HEAD_DIM
CEPHALO, SDPA, BOOK = "cephalo", "PyTorch SDPA", "the book's class"


def layer_call(name, tokens, options):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1, tokens, WIDTH), dtype=np.float32)
    parameters = layers.make_parameters(WIDTH, rng)
    if name == CEPHALO:
        layer = native.Layer(native.Cephalo(options.library), WIDTH, HEADS, parameters)
        return layer.forward(x, options.threads)
    layer = (layers.SdpaLayer(WIDTH, HEADS) if name == SDPA
             else layers.BookLayer(WIDTH, tokens, HEADS))
    return layers.torch_layer(layer, parameters, x)


def attention_call(name, tokens, options):
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, HEADS, tokens, HEAD_DIM), dtype=np.float32)
               for _ in range(3))
    if name == CEPHALO:
        library = native.Cephalo(options.library)
        mask = native.Mask(library, [("causal", 0)])
        return library.attend(q, k, v, mask, options.threads)
    if name == SDPA:
        return layers.sdpa(q, k, v, is_causal=True)
    q, k, v = map(torch.from_numpy, (q, k, v))
    future = torch.triu(torch.ones(tokens, tokens), diagonal=1)
    return lambda: layers.book_attention(q, k, v, future)


def make_call(name, tokens, options):
    return (layer_call if options.of == "layer" else attention_call)(name, tokens, options)


def memory_field(path, field):
    """Bytes of a "Name:  123 kB" line."""
    with open(path, encoding="ascii") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def extra_bytes(name, options):
    """What one call needs beyond its inputs, parameters, buffers and output. The code is brought
    into memory by a small call; what the allocator holds back is returned before the large one."""
    make_call(name, 64, options)()
    call = make_call(name, options.tokens, options)
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as peak:
        peak.write("5")  # the peak starts again at what is resident now
    before = memory_field("/proc/self/status", "VmRSS")
    result = call()
    peak = memory_field("/proc/self/status", "VmHWM")
    allocated = 0 if name == CEPHALO else result.nbytes  # cephalo's output was there before
    return max(0, peak - before - allocated)


def measure_memory(options):
    # An error that can be caught, before the kernel ends the process.
    limit = int(0.9 * memory_field("/proc/meminfo", "MemAvailable"))
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        return {"bytes": extra_bytes(options.names[0], options)}
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        return {"bytes": None}


def measure_time(options):
    calls = {name: make_call(name, options.tokens, options) for name in options.names}
    worker.differences(f"{options.tokens} tokens", calls)
    times = timing.alternate(calls, options.rounds)
    return {"versions": worker.versions(native.Cephalo(options.library)),
            "ms": {name: 1e3 * min(seconds) for name, seconds in times.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["memory", "time"])
    parser.add_argument("names", nargs="+", choices=[CEPHALO, SDPA, BOOK])
    parser.add_argument("--library", default=native.LIBRARY)
    parser.add_argument("--of", choices=["layer", "attention"], default="layer")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with torch.inference_mode():
        measure = measure_memory if options.what == "memory" else measure_time
        print(json.dumps(measure(options)))


if __name__ == "__main__":
    main()
