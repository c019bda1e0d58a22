#!/usr/bin/env python3
"""Replays attend_ring on processes that need not exist: who computes, who waits, when messages arrive.

    python bench/ring_simulator.py --processes 64 --tokens 1048576 --heads 32 --flops 1.5e12 --bandwidth 12.5e9
    python bench/ring_simulator.py --measured rows.jsonl

--measured reads the lines of scale.py: costs from its rows `costs`, and sets the replay of every row
`attend` beside what was measured, by the mean speed of all processes and by that of the slowest. There
messages do not overlap: one machine moves them with the cores that compute (--no-overlap says so for a
replay of one's own).

Everyone sends its keys to all at the beginning; a process takes the next ones while it computes, or
without overlap when it has computed. Backwards, sums of gradients go round: a process waits for those of
the process before, adds its share and passes them on.
"""

import argparse
import dataclasses
import json

BACKWARD_FLOPS = 2.5  # of the forward pass


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
    flops: float
    bandwidth: float
    latency: float
    overlap: bool = True


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


def replay(shape, costs):
    """-> seconds until the last process is done, and the share of them that processes compute."""
    size = shape.processes
    flops = work_of(shape)
    rows = shape.tokens / size
    keys = rows * shape.kv_heads * 2 * shape.head_dim
    moving = costs.latency + keys * shape.item / costs.bandwidth if size > 1 else 0.0
    home = costs.latency + keys * 4 / costs.bandwidth if size > 1 else 0.0
    ready = [0.0] * size        # when a process has the keys of this step, and has ended the last
    sums = [0.0] * size         # when the sums of the keys at hand arrive
    for step in range(size):
        last = step + 1 == size
        done = [ready[r] + flops[r][step] / costs.flops for r in range(size)]
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
    return end, sum(map(sum, flops)) / costs.flops / size / end


def read(path):
    with open(path) as lines:
        return [json.loads(line) for line in lines if line.startswith("{")]


def compare(path):
    rows = read(path)
    costs = {row["processes"]: row for row in rows if row.get("row") == "costs"}
    for row in rows:
        size = row.get("processes")
        if row.get("row") != "attend" or row["threads"] != 1 or size not in costs or row["way"] == "heads":
            continue
        speeds = costs[size]["speeds"]
        for backward, measured in ((False, row["seconds"]), (True, row["backward_seconds"])):
            if not measured:
                continue
            shape = Shape(size, row["tokens"], row["heads"], row["heads"], backward=backward)
            told = [replay(shape, Costs(flops, costs[size]["bandwidth"], costs[size]["latency"], False))[0]
                    for flops in (sum(speeds) / size, min(speeds))]
            print(f"{size:3} processes, {row['tokens']} tokens, {'backward' if backward else 'forward':8} "
                  f"{told[0]:8.3f} to {told[1]:8.3f} s told, {min(measured):8.3f} s measured, "
                  f"{told[0] / min(measured):.2f} to {told[1] / min(measured):.2f}")


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
