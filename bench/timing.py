"""Several libraries timed side by side in one process on a machine that others use too.

An idle OpenMP worker of one library keeps spinning on a core that the next one wants. So after
every switch of library calls adding up to WARM_SECONDS run untimed, and only then some are timed;
rounds alternate the libraries, so that a busy neighbour hurts all of them alike.
"""

import statistics
import time

WARM_SECONDS = 0.020
TIMED_CALLS = 3
TIMED_SECONDS = 0.005  # calls of microseconds are timed more often


def seconds_of(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def repeat(call, calls, seconds):
    """Times of at least so many calls that together last at least so long."""
    times = []
    while len(times) < calls or sum(times) < seconds:
        times.append(seconds_of(call))
    return times


def alternate(calls, rounds):
    """name -> the quickest call of each round, in seconds."""
    quickest = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            repeat(call, 1, WARM_SECONDS)
            quickest[name].append(min(repeat(call, TIMED_CALLS, TIMED_SECONDS)))
    return quickest


def compare(ours, peer):
    """Times of each round -> best of all rounds and ratios; above 1: ours is faster."""
    return {"cephalo_ms": 1e3 * min(ours), "peer_ms": 1e3 * min(peer),
            "best_ratio": min(peer) / min(ours),
            "median_ratio": statistics.median(p / o for o, p in zip(ours, peer))}
