"""The simulator of a ring: pairs that are counted, and times that can be told by hand."""

import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from ring_simulator import MEASURED, Costs, Shape, helps, replay, told_and_measured, work_of  # noqa: E402


class Pairs(unittest.TestCase):
    def test_every_pair_is_computed_once(self):
        draw = random.Random(1)
        for _ in range(100):
            tokens, window = draw.randint(1, 40), draw.choice((0, 1, 3, 9))
            shape = Shape(draw.randint(1, 5), tokens, heads=1, kv_heads=1, head_dim=1, window=window)
            pairs = sum(1 for i in range(tokens) for j in range(i + 1) if window == 0 or i - j <= window)
            self.assertEqual(sum(map(sum, work_of(shape))) / 4, pairs, shape)

    def test_processes_have_equally_much_to_do(self):
        for flops in zip(*work_of(Shape(8, 1024, heads=1, kv_heads=1))):
            self.assertLess(max(flops) - min(flops), 0.02 * max(flops))


class Times(unittest.TestCase):
    """Two processes with 4 tokens each; 4 heads that share 2 of keys, 4 wide: 64 flops for a pair, 256 bytes
    of keys. The same numbers as in tests/attention/ring/spread_plan_test.cc."""

    def seconds(self, bandwidth, overlap=True, backward=False):
        shape = Shape(2, 8, heads=4, kv_heads=2, head_dim=4, backward=backward)
        return replay(shape, Costs(64, bandwidth, 1, overlap))[0]

    def test_keys_travel_while_others_are_attended_to(self):
        self.assertEqual(self.seconds(32), 10 + 8)
        self.assertEqual(self.seconds(16), (1 + 16) + 8)

    def test_without_overlap_they_travel_afterwards(self):
        self.assertEqual(self.seconds(32, overlap=False), 10 + (1 + 8) + 8)

    def test_backwards_gradients_come_home(self):
        self.assertEqual(self.seconds(32, backward=True), 2.5 * (10 + 8) + (1 + 8))

    def test_one_process_sends_nothing(self):
        shape = Shape(1, 8, heads=4, kv_heads=2, head_dim=4)
        self.assertEqual(replay(shape, Costs(64, 1e-9, 1e9))[0], 36)


class Uneven(unittest.TestCase):
    """Two processes of which one is twice as fast."""

    def seconds(self, tokens, **more):
        shape = Shape(2, tokens, heads=8, kv_heads=8, **more)
        work = sum(map(sum, work_of(shape)))
        return shape, work, replay(shape, Costs([1e11, 2e11], 1e18, 0.0))[0]

    def test_who_is_done_helps_with_long_pieces(self):
        shape, work, seconds = self.seconds(16384)
        self.assertTrue(helps(shape))
        self.assertAlmostEqual(seconds, work / 3e11, delta=1e-3 * seconds)

    def test_the_slowest_decides_about_short_ones_and_on_the_way_back(self):
        for shape, work, seconds in (self.seconds(1024), self.seconds(16384, backward=True)):
            self.assertFalse(helps(shape))
            self.assertAlmostEqual(seconds, work / 2 / 1e11, delta=1e-3 * seconds)

    def test_joining_and_new_memory_take_time(self):
        shape = Shape(2, 8, heads=4, kv_heads=2, head_dim=4)
        plain = replay(shape, Costs(64, 32, 1))[0]
        # 3 pairs of pieces, then 2: 2 rows, 4 heads, 4 wide.
        self.assertEqual(replay(shape, Costs(64, 32, 1, number=0.5))[0] - plain, 0.5 * 5 * 2 * 4 * 4)
        # Two times keys and values, 256 bytes each; context, and a half of it that joins.
        self.assertEqual(replay(shape, Costs(64, 32, 1, page=4096))[0] - plain, 2 * 256 + 1.5 * 4 * 4 * 4 * 4)


class Measured(unittest.TestCase):
    def test_rows_are_told_by_the_speeds_of_their_own_processes(self):
        rows = [{"row": "costs", "processes": 2, "threads": 1, "bandwidth": 1e9, "latency": 0.0},
                {"row": "train", "processes": 1, "threads": 1, "batch": 16, "parameters": 1, "speeds": [1e11],
                 "seconds": [1.0, 1.1, 9.0]},
                {"row": "train", "processes": 2, "threads": 1, "batch": 16, "parameters": 25 * 10**6,
                 "speeds": [1e11, 5e10], "seconds": [2.0]},
                {"row": "train", "processes": 2, "threads": 8, "batch": 16, "parameters": 1, "speeds": [1.0],
                 "seconds": [1.0]},
                {"row": "attend", "processes": 2, "threads": 1, "way": "", "tokens": 16384, "heads": 8,
                 "speeds": [1e11, 2e11], "seconds": [1.0, 2.0], "backward_speeds": [3e11, 4e11],
                 "backward_seconds": [3.0]}]
        found = list(told_and_measured(rows))
        self.assertEqual([(size, measured) for _, size, _, measured in found], [(1, 1.1), (2, 2.0), (2, 1.5), (2, 3.0)])
        self.assertAlmostEqual(found[0][2], 1.1)
        self.assertAlmostEqual(found[1][2], 1.1 + 0.1)
        costs = Costs([1e11, 2e11], 1e9, 0.0, **MEASURED)
        self.assertEqual(found[2][2], replay(Shape(2, 16384, 8, 8), costs)[0])
        costs = Costs([3e11, 4e11], 1e9, 0.0, **MEASURED)
        self.assertEqual(found[3][2], replay(Shape(2, 16384, 8, 8, backward=True), costs)[0])


if __name__ == "__main__":
    unittest.main()
