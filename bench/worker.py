"""Measures rows with one number of threads; peers.py starts it. Prints a JSON object a line.

A process of its own for every number of threads, because OMP_NUM_THREADS is read once.
"""

import argparse
import json
import platform

import numpy as np
import onnxruntime
import torch

import native
import rows
import timing

MOST_DIFFERENCE = 1e-5


def as_arrays(result):
    """One result or several, as a list of arrays."""
    results = result if isinstance(result, (list, tuple)) else [result]
    return [r.detach().numpy() if isinstance(r, torch.Tensor) else np.array(r) for r in results]


def results_of(call):
    return as_arrays(getattr(call, "results", call)())


def difference_of(found, expected, scales):
    """The largest difference, each result's by its scale."""
    pairs = zip(found, expected, scales, strict=True)
    return float(np.max([np.abs(one - other).max() / scale for one, other, scale in pairs]))


def differences(what, calls, scales_of=lambda results: [1.0] * len(results)):
    """name -> the largest difference from cephalo; an error if a result is another one."""
    expected = results_of(calls[rows.CEPHALO])
    scales = scales_of(expected)
    found = {}
    for name, call in calls.items():
        found[name] = difference_of(results_of(call), expected, scales)
        if not found[name] <= MOST_DIFFERENCE:  # NaN is not
            raise SystemExit(f"{what}: {name} differs from cephalo by {found[name]:.2g}, more "
                             f"than {MOST_DIFFERENCE}")
    return found


def measure(row, library, options):
    calls = row.calls(library, options.threads)
    difference = differences(row.name, calls, row.scales)
    times = timing.alternate(calls, min(options.rounds, row.most_rounds))
    for name in calls:
        if name != rows.CEPHALO:
            yield {"row": row.name, "threads": options.threads, "peer": name,
                   "difference": difference[name],
                   **timing.compare(times[rows.CEPHALO], times[name])}


def versions(library):
    return {"cephalo": library.version(), "PyTorch": torch.__version__,
            "onnxruntime": onnxruntime.__version__, "numpy": np.__version__,
            "Python": platform.python_version()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=native.LIBRARY)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", nargs="*")
    options = parser.parse_args()
    library = native.Cephalo(options.library)
    torch.set_num_threads(options.threads)
    print(json.dumps({"versions": versions(library)}), flush=True)
    for row in rows.selected(options.rows):
        row = row.shrunk() if options.quick else row
        with row.torch_mode():
            for result in measure(row, library, options):
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
