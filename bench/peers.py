#!/usr/bin/env python3
"""cephalo beside PyTorch and onnxruntime: the same arrays, one process, rounds that alternate.

    make bench-peers                          everything, three runs: hours
    peers.py --rows layer decode --threads 2  some rows
    peers.py --quick                          small sizes: does it work at all?
    peers.py --curve curve.json               time and memory against tokens; then plot.py

Before a row is timed, all results must agree to 1e-5; gradients of attention to that times their
largest element where it exceeds 1, those of a layer relative to their largest element. A ratio is
the peer's time by cephalo's: above 1, cephalo is faster. best/best compares the quickest calls of
all rounds and runs, median is that of the ratios of single rounds, and beside them stands best/best
of each run, lowest and highest. cephalo and onnxruntime write into memory that they are given;
PyTorch has no such call.

Needs the shared library (cmake --preset shared) and torch, numpy, onnx and onnxruntime.
"""

import argparse
import datetime
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
QUICK_ROUNDS = 3
CURVE_TOKENS = [512, 1024, 2048, 4096, 8192, 16384]
QUICK_TOKENS = [64, 128, 256]
CURVE_LIBRARIES = ["cephalo", "PyTorch SDPA", "the book's class"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=[], metavar="WORD",
                        help="only rows whose name holds one of these words")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=1,
                        help="repeats the whole; the best times count")
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds")
    parser.add_argument("--json", metavar="FILE", help="every run of every row")
    parser.add_argument("--curve", metavar="FILE", help="measure the curve instead of the rows")
    parser.add_argument("--curve-of", choices=["layer", "attention"], default="layer",
                        help="the whole layer, or what happens between its projections")
    parser.add_argument("--library", default=HERE.parent / "build/shared/libcephalo.so")
    options = parser.parse_args()
    options.threads = [int(count) for count in options.threads.split(",")]
    if options.quick:
        options.rounds = min(options.rounds, QUICK_ROUNDS)
    if not pathlib.Path(options.library).exists():
        parser.error(f"{options.library} is missing; make bench-peers builds it")
    return options


def machine():
    text = subprocess.run(["lscpu"], capture_output=True, text=True, check=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {"model": fields.get("Model name", "unknown").strip(),
            "cores": len(os.sched_getaffinity(0)),
            "date": datetime.date.today().isoformat()}


def lines_of(script, arguments, threads):
    """Runs one of our scripts with OMP_NUM_THREADS set; yields what it prints, JSON by the line."""
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)


def measure(options):
    """All runs: the versions, and a list of results as worker.py prints them."""
    versions, results = {}, []
    for run in range(options.runs):
        for threads in options.threads:
            arguments = ["--library", options.library, "--threads", threads,
                         "--rounds", options.rounds, "--rows", *options.rows]
            for line in lines_of("worker.py", arguments + ["--quick"] * options.quick, threads):
                if "versions" in line:
                    versions = line["versions"]
                    continue
                results.append({"run": run, **line})
                print(f"run {run + 1}/{options.runs}, threads {threads}: {line['row']}: "
                      f"{line['peer']} {line['best_ratio']:.2f}", file=sys.stderr)
    return versions, results


def over_runs(results):
    """One result for each row, peer and number of threads. Every library gets the best time of all
    runs: to take the run with the best ratio would reward a run that disturbed the peer."""
    groups = {}
    for result in results:
        groups.setdefault((result["threads"], result["row"], result["peer"]), []).append(result)
    combined = []
    for (threads, row, peer), runs in groups.items():
        ours = min(result["cephalo_ms"] for result in runs)
        theirs = min(result["peer_ms"] for result in runs)
        ratios = [result["best_ratio"] for result in runs]
        combined.append({"threads": threads, "row": row, "peer": peer, "cephalo_ms": ours,
                         "peer_ms": theirs, "best_ratio": theirs / ours,
                         "median_ratio": statistics.median(r["median_ratio"] for r in runs),
                         "lowest": min(ratios), "highest": max(ratios)})
    return combined


def curve(options):
    """Time and peak memory against tokens, with the last of the numbers of threads."""
    threads = options.threads[-1]
    common = ["--library", options.library, "--of", options.curve_of, "--threads", threads]
    report = {"of": options.curve_of, "threads": threads, "quick": options.quick, "points": []}
    for tokens in QUICK_TOKENS if options.quick else CURVE_TOKENS:
        size = [*common, "--tokens", tokens]
        memory = {name: curve_memory(size, name, threads) for name in CURVE_LIBRARIES}
        fits = [name for name in CURVE_LIBRARIES if memory[name] is not None]
        rounds = options.rounds if tokens <= 2048 else min(options.rounds, 5)
        timed = next(lines_of("curve.py", ["time", *fits, *size, "--rounds", rounds], threads))
        report["versions"] = timed["versions"]
        for name in CURVE_LIBRARIES:
            report["points"].append({"library": name, "tokens": tokens, "bytes": memory[name],
                                     "ms": timed["ms"].get(name)})
            print(report["points"][-1], file=sys.stderr)
    return report


def curve_memory(size, name, threads):
    """Bytes, or None where it does not fit into this machine."""
    try:
        return next(lines_of("curve.py", ["memory", name, *size], threads))["bytes"]
    except subprocess.CalledProcessError as error:
        if error.returncode != -signal.SIGKILL:  # that was the kernel, for want of memory
            raise
        return None


def print_header(info, versions, options):
    print(f"{info['model']}, {info['cores']} cores, {info['date']}")
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    print(f"float32; rounds {options.rounds}, runs {options.runs}; ratio = peer / cephalo, above 1 "
          "cephalo is faster")
    if options.quick:
        print("QUICK: shrunken sizes, these are not measurements")


def print_table(results, options):
    for threads in options.threads:
        mine = [result for result in results if result["threads"] == threads]
        print(f"\n{threads} thread{'s' if threads > 1 else ''}")
        print(f"{'':42}{'cephalo ms':>11}  {'peer':31}{'ms':>10}{'best/best':>11}{'median':>8}"
              f"  all runs")
        previous = None
        for r in mine:
            same = r["row"] == previous
            ours = "" if same else f"{r['cephalo_ms']:.3f}"
            print(f"{'' if same else r['row']:42}{ours:>11}  {r['peer']:31}{r['peer_ms']:10.3f}"
                  f"{r['best_ratio']:11.2f}{r['median_ratio']:8.2f}"
                  f"  {r['lowest']:.2f}-{r['highest']:.2f}")
            previous = r["row"]


def write_json(path, report):
    pathlib.Path(path).write_text(json.dumps(report, indent=1) + "\n")


def compare_rows(options):
    versions, results = measure(options)
    info = machine()
    print_header(info, versions, options)
    print_table(over_runs(results), options)
    if options.json:
        write_json(options.json, {"machine": info, "versions": versions, "quick": options.quick,
                                  "rounds": options.rounds, "results": results})


def main():
    options = parse_arguments()
    try:
        if options.curve:
            write_json(options.curve, {"machine": machine(), **curve(options)})
        else:
            compare_rows(options)
    except subprocess.CalledProcessError as error:  # it has said on stderr what went wrong
        sys.exit(abs(error.returncode))


if __name__ == "__main__":
    main()
