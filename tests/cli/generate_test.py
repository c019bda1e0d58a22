"""cephalo generate: text from a folder, the same for the same seed; bad folders and flags refused."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CLI = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "golden" / "gpt2"  # 53 ids


def cephalo(*arguments, **how):
    return subprocess.run([CLI, *map(str, arguments)], capture_output=True, check=False, **how)


def byte_letters():
    """The letters that stand for bytes in vocab.json, by byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + n) for n, b in enumerate(others)}}


class Generate(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def make_model(self):
        """A model of random parameters with a token for each byte."""
        import struct
        import random
        width, vocab = 8, 257
        shapes = {"wte.weight": (vocab, width), "wpe.weight": (16, width),
                  "ln_f.weight": (width,), "ln_f.bias": (width,)}
        for name, shape in (("ln_1.weight", (width,)), ("ln_1.bias", (width,)),
                            ("attn.c_attn.weight", (width, 3 * width)),
                            ("attn.c_attn.bias", (3 * width,)),
                            ("attn.c_proj.weight", (width, width)), ("attn.c_proj.bias", (width,)),
                            ("ln_2.weight", (width,)), ("ln_2.bias", (width,)),
                            ("mlp.c_fc.weight", (width, 4 * width)),
                            ("mlp.c_fc.bias", (4 * width,)),
                            ("mlp.c_proj.weight", (4 * width, width)),
                            ("mlp.c_proj.bias", (width,))):
            shapes["h.0." + name] = shape
        generator = random.Random(1)
        header, data = {}, b""
        for name, shape in shapes.items():
            count = shape[0] * (shape[1] if len(shape) == 2 else 1)
            numbers = struct.pack(f"<{count}f", *(generator.gauss(0, 0.5) for _ in range(count)))
            header[name] = {"dtype": "F32", "shape": shape,
                            "data_offsets": [len(data), len(data) + len(numbers)]}
            data += numbers
        text = json.dumps(header).encode()
        (self.folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        self.write_config(vocab_size=vocab, n_positions=16, n_embd=width, n_head=2, n_layer=1)
        letters = byte_letters()
        vocabulary = {letters[b]: b for b in range(256)} | {"<|endoftext|>": 256}
        (self.folder / "vocab.json").write_text(json.dumps(vocabulary))
        (self.folder / "merges.txt").write_text("#version: 0.2\n")

    def write_config(self, **keys):
        (self.folder / "config.json").write_text(json.dumps(keys))

    def refuses(self, status, message, *arguments):
        result = cephalo(*arguments)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stdout, b"")
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertIn(message, result.stderr.decode())

    def test_the_prompt_is_continued_and_the_seed_decides(self):
        self.make_model()
        runs = [cephalo("generate", "The cat", "--model", self.folder, "--new-tokens", 40, "--seed",
                        seed, "--top-k", 0) for seed in (1, 1, 2)]
        for run in runs:
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertTrue(run.stdout.startswith(b"The cat"))
            self.assertIn(b"tokens/s", run.stderr)
            shown = run.stdout.replace(b"\n", b"").replace(b"\t", b"")
            self.assertTrue(all(byte >= 0x20 and byte != 0x7F for byte in shown), run.stdout)
        self.assertEqual(runs[0].stdout, runs[1].stdout)
        self.assertNotEqual(runs[0].stdout, runs[2].stdout)

    def text_of(self, *words, **how):
        result = cephalo("generate", *words, "--model", self.folder, "--new-tokens", 40, **how)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_the_programs_own_defaults_and_greedy(self):
        self.make_model()
        flags = ("--temperature", 0.8, "--top-k", 50, "--top-p", 0.95, "--repetition-penalty", 1.1,
                 "--repetition-window", 64)
        self.assertEqual(self.text_of("The cat"), self.text_of("The cat", *flags))
        greedy = self.text_of("The cat", "--greedy", "--seed", 1)
        self.assertEqual(greedy, self.text_of("The cat", "--greedy", "--seed", 2))
        self.assertEqual(greedy, self.text_of("The cat", "--temperature", 0, "--repetition-penalty", 1))
        penalised = self.text_of("The cat", "--temperature", 0, "--repetition-penalty", 5)
        self.assertNotEqual(greedy, penalised)
        self.refuses(2, "--greedy", "generate", "a", "--model", self.folder, "--greedy", "--top-p", 0.5)

    def test_a_prompt_from_stdin_or_a_file(self):
        self.make_model()
        expected = self.text_of("The cat")
        self.assertEqual(self.text_of("-", input=b"The cat\n"), expected)
        prompt = self.folder / "prompt.txt"
        prompt.write_bytes(b"The cat\n")
        self.assertEqual(self.text_of("--file", prompt), expected)
        self.refuses(2, "PROMPT", "generate", "--model", self.folder)
        self.refuses(2, "--file", "generate", "a", "--file", prompt, "--model", self.folder)
        self.refuses(1, "nowhere: No such file", "generate", "--file", self.folder / "nowhere",
                     "--model", self.folder)

    def test_a_prompt_beyond_the_context_is_said_to_be_cut(self):
        self.make_model()
        for prompt, cut in (("x" * 16, False), ("x" * 17, True), ("x" * 8150, True)):
            result = cephalo("generate", prompt, "--model", self.folder, "--new-tokens", 2)
            self.assertEqual(result.returncode, 0, result.stderr)
            message = (f"warning: the prompt has {len(prompt)} tokens and the model's context_length is "
                       "16; only the last 8 are used\n")
            self.assertEqual(message in result.stderr.decode(), cut, result.stderr)

    def test_K6_a_wrong_configuration_is_one_line(self):
        self.make_model()
        self.write_config(vocab_size=257, n_positions=16, n_embd=8, n_head=3, n_layer=1)
        self.refuses(1, "config.json: n_embd (8) must be a multiple of n_head (3)", "generate", "a",
                     "--model", self.folder)

    def test_K7_a_claim_beyond_the_file_is_refused_at_once(self):
        self.make_model()
        self.write_config(vocab_size=257, n_positions=16, n_embd=8, n_head=2, n_layer=10**9)
        self.refuses(1, "h.1.ln_1.weight: is missing, but config.json requires it", "generate", "a",
                     "--model", self.folder)

    def test_what_is_not_there_is_named(self):
        self.refuses(1, "config.json", "generate", "a", "--model", self.folder / "nowhere")
        self.refuses(1, "vocab.json", "generate", "a", "--model", MODEL)

    def test_flags_are_checked(self):
        for flag, value in (("--new-tokens", "0"), ("--temperature", "-1"), ("--top-p", "1.5"),
                            ("--top-p", "0"), ("--top-k", "x"), ("--seed", "-3"),
                            ("--repetition-penalty", "0"), ("--repetition-window", "-1")):
            result = cephalo("generate", "a", "--model", MODEL, flag, value)
            self.assertEqual(result.returncode, 2, flag)
            self.assertIn(flag.encode(), result.stderr)

    def test_the_built_in_model_does_not_go_round_in_circles(self):
        for prompt in ("Once upon a time", "The cat sat on"):
            words = cephalo("generate", prompt, "--new-tokens", 120).stdout.decode().split()
            runs = [tuple(words[k:k + 5]) for k in range(len(words) - 4)]
            self.assertLessEqual(max(map(runs.count, runs)), 2, " ".join(words))

    def test_without_a_folder_the_built_in_model_speaks(self):
        ours = cephalo("generate", "Once upon", "--new-tokens", 5)
        folder = cephalo("generate", "Once upon", "--new-tokens", 5, "--model",
                         ROOT / "models/cephalo-small")
        self.assertEqual(ours.returncode, 0, ours.stderr)
        self.assertTrue(ours.stdout.startswith(b"Once upon"))
        self.assertEqual(ours.stdout, folder.stdout)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
