#!/usr/bin/env python3
"""Replays attend_ring on processes that need not exist: who computes, who waits, when messages arrive.

    python bench/ring_simulator.py --processes 64 --tokens 1048576 --heads 32 --flops 1.5e12 --bandwidth 12.5e9
    python bench/ring_simulator.py --measured rows.jsonl

--measured reads the lines of scale.py: what messages cost from its rows `costs`, and sets the replay of every
row `attend` and `train` beside what was measured, by the speeds that the row found its own processes to have.
There messages do not overlap: one machine moves them with the cores that compute (--no-overlap says so for a
replay of one's own).

Everyone sends its keys to all at the beginning; a process takes the next ones while it computes, or
without overlap when it has computed. Forward, processes that are done attend for those that are not, unless
pieces are too short for that: all end together. Backwards the slowest decides: sums of gradients go round, a
process waits for those of the process before, adds its share and passes them on.
"""

import argparse
import dataclasses
import json
import statistics

BACKWARD_FLOPS = 2.5  # of the forward pass
# Flops of a piece of queries against one of keys from which on processes help each other.
HELP_FLOPS = 5e8
# A piece takes as long as if it had so many keys more: rows are packed for few of them. Forward, backward.
EDGE_KEYS = (40, 75)


@dataclasses.dataclass
class Shape:
    processes: int
    tokens: int
    heads: int
    kv_heads: int
    head_dim: int = 64
    item: int = 4          # bytes of a number of q, k and v
    window: int = 0        # keys to the left of a query; 0: all
    backward: bool = False


@dataclasses.dataclass
class Costs:
    flops: float | list    # a second, of every process or of each
    bandwidth: float
    latency: float
    overlap: bool = True
    number: float = 0.0    # seconds for one that is joined or added to a sum
    page: float = 0.0      # seconds for 4096 bytes of new memory
    edges: bool = False    # do short pieces take longer?


# What numbers and pages take on one core of the machine of docs/scale.md.
MEASURED = {"overlap": False, "number": 1.5e-9, "page": 2e-6, "edges": True}


def pieces(shape):
    """[begin, end) of the 2 * processes pieces."""
    count = 2 * shape.processes
    each, more = divmod(shape.tokens, count)
    begins = [p * each + min(p, more) for p in range(count + 1)]
    return list(zip(begins, begins[1:]))


def sum_to(n):
    return n * (n + 1) // 2


def seen(q, keys):
    """Pairs of a causal mask: queries [q0, q1) and keys [k0, k1), query i sees keys up to i."""
    (q0, q1), (k0, k1) = q, keys
    rising = (max(q0, k0), min(q1, k1))  # queries that see a part of these keys
    pairs = max(0, q1 - max(q0, k1)) * (k1 - k0)
    if rising[0] < rising[1]:
        pairs += sum_to(rising[1] - k0) - sum_to(rising[0] - k0)
    return pairs


def visible(q, keys, window):
    """The same under a window: without the keys that a query is further away from."""
    pairs = seen(q, keys)
    if window > 0:
        moved = (keys[0] + window + 1, keys[1] + window + 1)
        pairs -= seen(q, moved)
    return pairs


def work_of(shape):
    """-> flops[rank][step]"""
    cut, count, size = pieces(shape), 2 * shape.processes, shape.processes
    pair = 4.0 * shape.heads * shape.head_dim * (BACKWARD_FLOPS if shape.backward else 1.0)
    own = [(r, count - 1 - r) for r in range(size)]
    return [[pair * sum(visible(cut[a], cut[b], shape.window) for a in own[r] for b in own[(r - s) % size])
             for s in range(size)] for r in range(size)]


def piece_rows(shape):
    return shape.tokens / (2 * shape.processes)


def helps(shape):
    """Do processes that are done attend for others?"""
    flops = 4.0 * shape.heads * shape.head_dim * piece_rows(shape) ** 2
    return shape.processes > 1 and not shape.backward and flops >= HELP_FLOPS


def numbers_of(shape):
    """Numbers that a process joins or adds to sums in one pass, by step."""
    if shape.processes == 1:
        return [0.0]
    rows, width = piece_rows(shape), shape.heads * shape.head_dim
    keys = 2 * shape.kv_heads * shape.head_dim
    of_pair = rows * (width + keys) if shape.backward else rows * width
    sums = 2 * rows * keys if shape.backward else 0.0
    return [(3 if step == 0 else 2) * of_pair + sums for step in range(shape.processes)]


def new_bytes(shape):
    """Memory that a process takes from the system for one pass."""
    if shape.processes == 1:
        return shape.item * shape.tokens * shape.heads * shape.head_dim * (3 if shape.backward else 1)
    rows, width = 2 * piece_rows(shape), shape.heads * shape.head_dim
    keys = 2 * rows * shape.kv_heads * shape.head_dim
    held = shape.item * keys * (1 + min(shape.processes - 1, 2))
    if not shape.backward:
        return held + 4 * 1.5 * rows * width
    return held + 4 * (1.5 * rows * width + 3.5 * keys) + shape.item * (rows * width + keys)


def speeds_of(shape, costs):
    """Flops a second of every process, for pieces as long as these."""
    speeds = costs.flops if isinstance(costs.flops, list) else [costs.flops] * shape.processes
    if helps(shape):
        speeds = [sum(speeds) / len(speeds)] * shape.processes
    slower = 1.0
    if costs.edges and shape.processes > 1:
        slower += EDGE_KEYS[shape.backward] / piece_rows(shape)
    return [speed / slower for speed in speeds]


def replay(shape, costs):
    """-> seconds until the last process is done, and the share of them that processes compute."""
    size = shape.processes
    flops, speeds = work_of(shape), speeds_of(shape, costs)
    numbers = [costs.number * each for each in numbers_of(shape)]
    rows = shape.tokens / size
    keys = rows * shape.kv_heads * 2 * shape.head_dim
    moving = costs.latency + keys * shape.item / costs.bandwidth if size > 1 else 0.0
    home = costs.latency + keys * 4 / costs.bandwidth if size > 1 else 0.0
    ready = [costs.page * new_bytes(shape) / 4096] * size  # has the keys of this step, and has ended the last
    sums = [0.0] * size         # when the sums of the keys at hand arrive
    for step in range(size):
        last = step + 1 == size
        done = [ready[r] + flops[r][step] / speeds[r] + numbers[step] for r in range(size)]
        arrived = list(done)
        if not last:
            begin = ready if costs.overlap else done
            arrived = [max(done[r], begin[r] + moving) for r in range(size)]
        if shape.backward and size > 1:
            added = [max(arrived[r], sums[r]) for r in range(size)]
            sums = [added[(r - 1) % size] + home for r in range(size)]
            arrived = added
        ready = arrived
    end = max(max(ready), max(sums))
    return end, sum(sum(flops[r]) / speeds[r] for r in range(size)) / size / end


def train_step(one, processes, speeds, parameters, costs):
    """Seconds of a step in which every process has as many shards; one: a row of one process of one thread."""
    alone = statistics.median(one["seconds"]) * one["speeds"][0]
    sent = 2 * (processes - 1) / processes * 4 * parameters
    return alone / processes / min(speeds) + (sent / costs.bandwidth if processes > 1 else 0.0)


def read(path):
    with open(path) as lines:
        return [json.loads(line) for line in lines if line.startswith('{"row"')]


def told_and_measured(rows):
    """-> (what, processes, told, measured) of the rows of one thread; measured is the median."""
    costs = {row["processes"]: Costs(1.0, row["bandwidth"], row["latency"], **MEASURED)
             for row in rows if row.get("row") == "costs"}
    costs.setdefault(1, Costs(1.0, 1.0, 0.0, **MEASURED))
    one = next((row for row in rows if row.get("row") == "train" and row["processes"] == row["threads"] == 1), None)
    for row in rows:
        size = row.get("processes")
        if row.get("threads") != 1 or size not in costs or "speeds" not in row:
            continue
        own = dataclasses.replace(costs[size], flops=row["speeds"])
        if row["row"] == "attend" and row["way"] != "heads":
            for backward, measured in ((False, row["seconds"]), (True, row["backward_seconds"])):
                if measured:
                    if backward:
                        own = dataclasses.replace(own, flops=row["backward_speeds"])
                    shape = Shape(size, row["tokens"], row["heads"], row["heads"], backward=backward)
                    way = "backward" if backward else "forward"
                    yield f"{row['tokens']} tokens, {way}", size, replay(shape, own)[0], statistics.median(measured)
        if row["row"] == "train" and one is not None and row["batch"] == one["batch"]:
            told = train_step(one, size, row["speeds"], row["parameters"], own)
            yield f"training, {row['batch']} rows", size, told, statistics.median(row["seconds"])


def compare(path):
    for what, size, told, measured in told_and_measured(read(path)):
        print(f"{what:24} {size:3} processes {told:8.3f} s told, {measured:8.3f} s measured, {told / measured:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measured")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=131072)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=0, help="0: heads")
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--item", type=int, default=4)
    parser.add_argument("--window", type=int, default=0)
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--flops", type=float, default=1e11)
    parser.add_argument("--bandwidth", type=float, default=12.5e9)
    parser.add_argument("--latency", type=float, default=5e-6)
    parser.add_argument("--no-overlap", action="store_true")
    o = parser.parse_args()
    if o.measured:
        compare(o.measured)
        return
    shape = Shape(o.processes, o.tokens, o.heads, o.kv_heads or o.heads, o.head_dim, o.item, o.window, o.backward)
    seconds, share = replay(shape, Costs(o.flops, o.bandwidth, o.latency, not o.no_overlap))
    print(f"{seconds:.4g} s, {100 * share:.0f} % of them computing")


if __name__ == "__main__":
    main()
