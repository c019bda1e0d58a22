"""gradcheck: the verdict, the table and the same as JSON."""

import json
import subprocess
import sys
import unittest

CEPHALO = sys.argv[1]


def gradcheck(*arguments):
    return subprocess.run([CEPHALO, "gradcheck", *arguments], capture_output=True, text=True)


def report(*arguments):
    result = gradcheck("--json", *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


class Gradcheck(unittest.TestCase):
    def test_a_plain_call_passes(self):
        result = gradcheck()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")  # nobody looks: no progress
        lines = result.stdout.splitlines()
        self.assertRegex(lines[0], r"^attend by the \w+ engine: batch 2, heads 4/4, tokens 6/6, "
                                   r"width 8/8$")
        self.assertEqual(lines[1].split(), ["tensor", "checked", "worst", "analytic", "numeric",
                                            "error", "allowed"])
        self.assertEqual([line.split()[:2] for line in lines[2:5]],
                         [[name, str(2 * 4 * 6 * 8)] for name in "qkv"])
        self.assertEqual(lines[5:], ["passed: every element agrees"])
        self.assertLessEqual(max(map(len, lines)), 80)

    def test_every_option_by_every_engine(self):
        for engine in ("reference", "automatic"):
            found = report("--batch", "1", "--num-heads", "6", "--num-kv-heads", "2", "--q-tokens",
                           "3", "--kv-tokens", "5", "--head-dim", "4", "--v-dim", "3", "--mask",
                           "causal() & window(3, 0)", "--bias", "heads,k", "--softcap", "2.5",
                           "--dropout", "0.25", "--seed", "7", "--engine", engine)
            self.assertTrue(found["passed"])
            self.assertEqual(found["checks"], "elements")
            checked = {tensor["name"]: tensor["checked"] for tensor in found["tensors"]}
            self.assertEqual(checked, {"q": 6 * 3 * 4, "k": 2 * 5 * 4, "v": 2 * 5 * 3,
                                       "bias": 6 * 5})
            for tensor in found["tensors"]:
                self.assertLessEqual(tensor["worst"]["error"], tensor["worst"]["allowed"])

    def test_fast_checks_directions(self):
        found = report("--fast", "--tokens", "70", "--mask", "none", "--bias", "batch,q")
        self.assertEqual(found["checks"], "projections")
        self.assertEqual([(t["name"], t["checked"], t["failed"]) for t in found["tensors"]],
                         [(name, 8, 0) for name in ("q", "k", "v", "bias")])
        self.assertIn("passed: every projection agrees", gradcheck("--fast").stdout)

    def test_a_layer_by_its_parameters(self):
        result = gradcheck("--layer", "--d-in", "24", "--d-out", "24", "--num-heads", "4",
                           "--num-kv-heads", "2", "--qkv-bias", "--rotary", "--mask",
                           "causal() & window(3, 0)")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        lines = result.stdout.splitlines()
        self.assertRegex(lines[0], r"^MultiHeadAttention by the \w+ engine: 24 -> 24, heads 4/2, "
                                   r"batch 2, tokens 6$")
        self.assertEqual([line.split()[:2] for line in lines[2:-1]],
                         [["x", "288"], ["W_query.weight", "576"], ["W_query.bias", "24"],
                          ["W_key.weight", "288"], ["W_key.bias", "12"],
                          ["W_value.weight", "288"], ["W_value.bias", "12"],
                          ["out_proj.weight", "576"], ["out_proj.bias", "24"]])
        self.assertEqual(lines[-1], "passed: every element agrees")

    def test_every_option_of_a_layer_by_every_engine(self):
        for engine in ("reference", "fused"):
            found = report("--layer", "--d-in", "6", "--d-out", "8", "--num-heads", "2",
                           "--num-kv-heads", "1", "--v-dim", "3", "--kv-tokens", "4", "--d-kv",
                           "5", "--mask", "none", "--no-out-proj", "--dropout", "0.25",
                           "--tokens", "3", "--engine", engine)
            self.assertIn(f"by the {engine} engine: 6 -> 8, heads 2/1, batch 2, tokens 3/4",
                          found["title"])
            checked = {tensor["name"]: tensor["checked"] for tensor in found["tensors"]}
            self.assertEqual(checked, {"x": 2 * 3 * 6, "kv": 2 * 4 * 5, "W_query.weight": 8 * 6,
                                       "W_key.weight": 4 * 5, "W_value.weight": 3 * 5})
        fast = report("--layer", "--fast")
        self.assertEqual({t["checked"] for t in fast["tensors"]}, {8})

    def test_the_seed_decides(self):
        first = report("--fast", "--seed", "1")
        self.assertEqual(report("--fast", "--seed", "1"), first)
        self.assertNotEqual(report("--fast", "--seed", "2"), first)

    def test_a_disagreement_is_exit_status_1(self):
        for arguments in (("--atol", "0", "--rtol", "0"), ("--eps", "0.5", "--fast")):
            result = gradcheck(*arguments)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stdout, r"(?m)^q .* \d+ wrong$")
            self.assertTrue(result.stdout.endswith("\nfailed\n"))
            self.assertEqual(result.stderr, "error: gradcheck: gradients and central differences "
                                            "disagree\n")
            self.assertFalse(json.loads(gradcheck("--json", *arguments).stdout)["passed"])

    def test_wrong_flags(self):
        for arguments, error in (
                (("--batch", "0"), "--batch: '0' is not a whole number from 1 to 1048576"),
                (("--tokens", "4x"), "--tokens: '4x' is not a whole number from 1 to 1048576"),
                (("--num-kv-heads", "3"), "--num-kv-heads: 3 does not divide --num-heads 4"),
                (("--softcap", "0"), "--softcap: '0' is not a number above 0"),
                (("--eps", "inf"), "--eps: 'inf' is not a number above 0"),
                (("--rtol=-1",), "--rtol: '-1' is not a number from 0 up"),
                (("--dropout", "1"), "--dropout: '1' is not a number from 0 to below 1"),
                (("--engine", "quick"), "--engine: 'quick' is not one of automatic, reference, "
                                        "fused"),
                (("--bias", "heads,,k"), "--bias: '' is not one of batch, heads, q, k"),
                (("--bias", "tokens"), "--bias: 'tokens' is not one of batch, heads, q, k"),
                (("--mask", "causal("), "--mask: expected a number at character 8 of 'causal('"),
                (("--rotary",), "--rotary: only with --layer"),
                (("--d-in", "8"), "--d-in: only with --layer"),
                (("--layer", "--softcap", "3"), "--softcap: a layer has no such option"),
                (("--layer", "--head-dim", "3"), "--head-dim: a layer has no such option"),
                (("--layer", "--d-kv", "8"), "--d-kv: only with --kv-tokens"),
                (("--layer", "--d-out", "25"), "MultiHeadAttention: d_out (25) must be divisible by "
                                               "num_heads (4); 1 or 5 heads fit"),
                (("--tokns", "3"), "unknown flag '--tokns' (did you mean --tokens?); see cephalo "
                                   "gradcheck --help")):
            result = gradcheck(*arguments)
            self.assertEqual((result.returncode, result.stdout, result.stderr),
                             (2, "", f"error: {error}\n"))

    def test_a_mask_that_does_not_fit_is_bad_data(self):
        result = gradcheck("--mask", "lengths([3, 4, 5])")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("lengths(kv) has 3 entries, batch is 2", result.stderr)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
