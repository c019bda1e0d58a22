"""The simulator of a ring: pairs that are counted, and times that can be told by hand."""

import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from ring_simulator import Costs, Shape, replay, work_of  # noqa: E402


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


if __name__ == "__main__":
    unittest.main()
