"""run, convert and inspect on files that PyTorch, NumPy and safetensors wrote, and on wrong ones."""

import json
import math
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time
import unittest

CEPHALO = sys.argv[1]
SANITIZED = "--sanitized" in sys.argv  # sanitizers take memory and time of their own
SECONDS = 10.0 if SANITIZED else 2.0
FILES = pathlib.Path(__file__).resolve().parents[1] / "golden/files"


def cephalo(*arguments, **more):
    return subprocess.run([CEPHALO, *map(str, arguments)], capture_output=True, text=True, **more)


def read_npy(path):
    """Shape and float32 numbers of a version 1.0 file."""
    data = pathlib.Path(path).read_bytes()
    begin = 10 + int.from_bytes(data[8:10], "little")
    header = data[10:begin].decode()
    assert "'<f4'" in header, header
    shape = tuple(int(d) for d in header.split("(")[1].split(")")[0].split(",") if d.strip())
    return shape, struct.unpack(f"<{(len(data) - begin) // 4}f", data[begin:])


def write_npy(path, shape, numbers):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header +
                     struct.pack(f"<{len(numbers)}f", *numbers))


def write_tensors(path, tensors):
    """tensors: name -> (shape, numbers)"""
    header, data = {}, b""
    for name, (shape, numbers) in tensors.items():
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


class InFolder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def at(self, name):
        return pathlib.Path(self.folder.name) / name

    def ok(self, *arguments):
        result = cephalo(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def refuses(self, status, message, *arguments):
        """The contract of every bad input: status, one line, nothing written, soon."""
        before = sorted(os.listdir(self.folder.name))
        start = time.monotonic()
        result = cephalo(*arguments)
        self.assertLess(time.monotonic() - start, SECONDS)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr, f"error: {message}\n")
        self.assertEqual(sorted(os.listdir(self.folder.name)), before)


    def refuses_cheaply(self, path, message):
        """The same with the bounds of the contract: 2 s of work, 64 MiB and twice the file."""
        # Started by a small process: a child's peak begins with what its parent held at the fork.
        seen = json.loads(subprocess.run([sys.executable, "-c", MEASURE, CEPHALO, "inspect", path],
                                         capture_output=True, check=True).stdout)
        self.assertEqual(seen["error"], f"error: {path}: {message}\n")
        self.assertEqual((seen["status"], seen["output"]), (1, ""))
        if not SANITIZED:
            self.assertLess(seen["seconds"], 2.0)
            self.assertLess(seen["bytes"], (64 << 20) + 2 * path.stat().st_size)


MEASURE = """
import json, resource, subprocess, sys
result = subprocess.run(sys.argv[1:], capture_output=True, text=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"status": result.returncode, "output": result.stdout, "error": result.stderr,
                  "seconds": used.ru_utime + used.ru_stime, "bytes": 1024 * used.ru_maxrss}))
"""


def with_length(header):
    return len(header).to_bytes(8, "little") + header


class Run(InFolder):
    def test_every_form_gives_pytorchs_output(self):
        cases = json.loads((FILES / "cases.json").read_text())["cases"]
        self.assertEqual(len(cases), 7)
        for case in cases:
            form = case["form"]
            out = self.at(f"{form}.npy")
            self.ok("run", FILES / f"{form}.safetensors", FILES / f"{form}.x.npy", "-o", out,
                    *case["flags"])
            shape, ours = read_npy(out)
            expected_shape, theirs = read_npy(FILES / f"{form}.y.npy")
            self.assertEqual(shape, expected_shape)
            bound = 1e-6 * max(1.0, max(map(abs, theirs)))
            self.assertLessEqual(max(abs(a - b) for a, b in zip(ours, theirs)), bound, form)

    def test_weights_and_masks(self):
        arguments = ["run", FILES / "linear.safetensors", FILES / "linear.x.npy", "--num-heads", 3]
        self.ok(*arguments, "-o", self.at("y"), "--weights", self.at("w"), "--mask",
                "causal() & window(1, 0)")
        shape, weights = read_npy(self.at("w"))
        self.assertEqual(shape, (2, 3, 7, 7))
        row = weights[5 * 7:6 * 7]  # of query 5
        self.assertEqual([w > 0 for w in row], [False] * 4 + [True, True, False])
        self.ok(*arguments, "-o", self.at("y2"), "--mask", "causal() & window(1, 0)")
        self.assertEqual(read_npy(self.at("y")), read_npy(self.at("y2")))

    def test_words_of_masks(self):
        base = ["run", FILES / "linear.safetensors", FILES / "linear.x.npy", "--num-heads", 3]
        for number, words in enumerate((
                "causal(2)", "causal([1, 2])", "window(unlimited, 0)", "lengths([7, 3])",
                "lengths([7, 3], [7, 2])", "positions('top_left') & causal()",
                'positions("bottom_right", 1) & causal()', "alibi([0.5, 0.25, 0.125])")):
            self.ok(*base, "-o", self.at(f"{number}.npy"), "--mask", words)
        refuse = lambda words, message: self.refuses(2, message, *base, "-o", self.at("z"),
                                                     "--mask", words)
        refuse("casual()", "--mask: unknown part casual(); known are causal, window, lengths, "
                           "positions, alibi, documents, keep, drop and bias")
        refuse("causal() &", "--mask: expected the name of a mask part at character 11 of "
                             "'causal() &'")
        refuse("window(1)", "--mask: window() needs more arguments")
        refuse("window(1, 2, 3)", "--mask: window() has too many arguments")
        refuse("window(1.5, 0)", "--mask: argument 1 of window() must be a whole number")

    def test_trace_of_an_array(self):
        out = self.ok("trace", "--input", FILES / "raw.x.npy", "--num-heads", "3", "--d-out", "24")
        self.assertIn("x                           (1, 7, 24)", out)
        self.assertLessEqual(max(map(len, out.splitlines())), 80)


class RotaryModel(InFolder):
    """A layer out of the folder of a model whose config.json says rotary positions."""

    WIDTH, HEADS, TOKENS, BASE = 8, 2, 3, 100.0

    def setUp(self):
        super().setUp()
        width, numbers = self.WIDTH, random.Random(1)
        draw = lambda count: [numbers.gauss(0, 0.5) for _ in range(count)]
        self.qkv, self.qkv_bias = draw(width * 3 * width), draw(3 * width)
        self.out, self.out_bias = draw(width * width), draw(width)
        self.x = draw(self.TOKENS * width)
        self.model = self.at("model.safetensors")
        write_tensors(self.model, {
            "transformer.wte.weight": ([5, width], draw(5 * width)),
            "transformer.h.0.attn.c_attn.weight": ([width, 3 * width], self.qkv),
            "transformer.h.0.attn.c_attn.bias": ([3 * width], self.qkv_bias),
            "transformer.h.0.attn.c_proj.weight": ([width, width], self.out),
            "transformer.h.0.attn.c_proj.bias": ([width], self.out_bias)})
        self.at("config.json").write_text(json.dumps(
            {"vocab_size": 5, "n_positions": 16, "n_embd": width, "n_head": self.HEADS, "n_layer": 1,
             "positions": "rotary", "rotary_base": self.BASE, "rotary_interleaved": False}))
        write_npy(self.at("x.npy"), (self.TOKENS, width), self.x)

    def expected(self):
        """The layer written out: project, rotate, attend, project."""
        width, dim = self.WIDTH, self.WIDTH // self.HEADS
        rows = [self.x[t * width:(t + 1) * width] for t in range(self.TOKENS)]
        qkv = [[sum(row[i] * self.qkv[i * 3 * width + c] for i in range(width)) + self.qkv_bias[c]
                for c in range(3 * width)] for row in rows]

        def turned(vector, position):
            half = dim // 2
            out = list(vector)
            for k in range(half):
                angle = position * self.BASE ** (-2 * k / dim)
                a, b = vector[k], vector[k + half]
                out[k] = a * math.cos(angle) - b * math.sin(angle)
                out[k + half] = a * math.sin(angle) + b * math.cos(angle)
            return out

        result = []
        for i in range(self.TOKENS):
            context = []
            for head in range(self.HEADS):
                part = lambda t, which: qkv[t][which * width + head * dim:][:dim]
                q = turned(part(i, 0), i)
                scores = [sum(a * b for a, b in zip(q, turned(part(j, 1), j))) / math.sqrt(dim)
                          for j in range(i + 1)]
                weights = [math.exp(s - max(scores)) for s in scores]
                context += [sum(w * part(j, 2)[d] for j, w in enumerate(weights)) / sum(weights)
                            for d in range(dim)]
            result += [sum(context[c] * self.out[c * width + o] for c in range(width)) +
                       self.out_bias[o] for o in range(width)]
        return result

    def assert_runs_as_expected(self, *arguments):
        self.ok("run", *arguments, "-o", self.at("y.npy"), "--force")
        shape, ours = read_npy(self.at("y.npy"))
        self.assertEqual(shape, (self.TOKENS, self.WIDTH))
        self.assertLess(max(abs(a - b) for a, b in zip(ours, self.expected())), 1e-5)

    def test_run_does_what_config_json_says(self):
        self.assert_runs_as_expected(self.model, self.at("x.npy"), "--prefix", "transformer.h.0.")

    def test_convert_keeps_rotary_positions_or_refuses(self):
        layer = ["--prefix", "transformer.h.0."]
        for form in ("separate", "heads", "linear", "joined", "torch"):
            self.refuses(1, f"{self.at('l')}: form {form} cannot hold rotary positions; "
                            "--allow-rotary puts them into the metadata, which only cephalo reads",
                         "convert", self.model, self.at("l"), "--to", form, *layer)
        self.ok("convert", self.model, self.at("own"), "--to", "gpt2", *layer)
        self.assert_runs_as_expected(self.at("own"), self.at("x.npy"))
        self.ok("convert", self.model, self.at("l"), "--to", "separate", "--allow-rotary", *layer)
        self.assert_runs_as_expected(self.at("l"), self.at("x.npy"))


class Convert(InFolder):
    def test_there_and_back_is_the_same_file(self):
        self.ok("convert", FILES / "separate.safetensors", self.at("a"), "--to", "separate",
                "--num-heads", 3)
        for form in ("heads", "linear", "joined", "torch", "gpt2"):
            self.ok("convert", self.at("a"), self.at(f"to-{form}"), "--to", form)
            self.ok("convert", self.at(f"to-{form}"), self.at(f"from-{form}"), "--to", "separate")
            self.assertEqual(self.at("a").read_bytes(), self.at(f"from-{form}").read_bytes())
        self.ok("convert", self.at("a"), self.at("by-its-old-name"), "--to", "fused")
        self.assertEqual(self.at("by-its-old-name").read_bytes(), self.at("to-joined").read_bytes())

    def test_a_model_is_made_to_read_longer_texts(self):
        out = self.ok("convert", "builtin", self.at("long"), "--context-length", 2048)
        self.assertIn("reads 2048 tokens instead of 256; beyond 256 it was not trained", out)
        config = json.loads((self.at("long") / "config.json").read_text())
        self.assertEqual((config["n_positions"], config["trained_context_length"]), (2048, 256))
        said = self.ok("look", "word " * 299, "--model", self.at("long"))
        self.assertIn("Beyond what the model was trained on: 302 tokens, trained on 256 at a time.", said)
        said = self.ok("look", "word " * 99, "--model", self.at("long"))
        self.assertNotIn("Beyond", said)
        self.refuses(2, "builtin: is a model, which is written with another --context-length; --to is for "
                        "a layer", "convert", "builtin", self.at("b"), "--to", "gpt2")
        self.refuses(2, "--to: is missing: the FORM that the layer is written in",
                     "convert", FILES / "separate.safetensors", self.at("b"))

    def test_what_does_not_fit_is_refused_by_name(self):
        self.refuses(1, "MultiHeadAttention: form raw cannot hold an output projection",
                     "convert", FILES / "separate.safetensors", self.at("b"), "--to", "raw",
                     "--num-heads", 3)
        self.refuses(1, f"{FILES}/separate.safetensors: num_heads is not in the file and cannot be "
                        "inferred from it; pass --num-heads",
                     "convert", FILES / "separate.safetensors", self.at("b"), "--to", "fused")
        self.refuses(2, "--to: 'fussed' is not one of separate, raw, heads, linear, joined, torch, "
                        "gpt2", "convert", FILES / "raw.safetensors", self.at("b"), "--to", "fussed")


class Inspect(InFolder):
    def test_a_table_and_json(self):
        out = self.ok("inspect", FILES / "separate.safetensors")
        self.assertIn("form separate, 9 tensors, 2400 parameters", out)
        self.assertIn("  mask             (16, 16)  float32   buffer\n", out)
        report = json.loads(self.ok("inspect", FILES / "gpt2.safetensors", "--prefix", "h.0.",
                                    "--json"))
        self.assertEqual(report["what"], "form gpt2")
        self.assertEqual(report["numbers"], 4 * 24 * 24 + 4 * 24)
        self.assertIn("array", self.ok("inspect", FILES / "fortran.npy"))
        self.assertIn("bool", self.ok("inspect", FILES / "bool.npy"))


    def test_a_model_is_described(self):
        folder = FILES.parents[2] / "models/cephalo-small"
        config = json.loads((folder / "config.json").read_text())
        what = (f"GPT of {config['n_layer']} layers x {config['n_head']} heads, d_model "
                f"{config['n_embd']}, context_length {config['n_positions']}, vocab_size "
                f"{config['vocab_size']}, rotary positions")
        for path in (folder, folder / "model.safetensors"):
            out = self.ok("inspect", path)
            self.assertTrue(out.startswith(f"{folder}/model.safetensors: {what}, "), out[:200])
            report = json.loads(self.ok("inspect", path, "--json"))
            self.assertEqual(report["what"], what)
            self.assertEqual(report["gpt"]["num_heads"], config["n_head"])
            self.assertEqual(report["gpt"]["positions"], "rotary")
            self.assertIn(f", {report['numbers']} parameters\n", out)
        layer = self.ok("inspect", folder / "model.safetensors", "--prefix", "transformer.h.0.")
        self.assertIn("form gpt2, ", layer)

    def test_a_model_that_cannot_be_loaded_says_why(self):
        folder = FILES.parents[2] / "models/cephalo-small"
        alone = self.at("model.safetensors")
        alone.symlink_to(folder / "model.safetensors")
        self.assertIn("GPT that cannot be loaded (", self.ok("inspect", alone))
        config = json.loads((folder / "config.json").read_text())
        self.at("config.json").write_text(json.dumps(config | {"n_layer": 9}))
        self.assertIn("is missing, but config.json requires it)", self.ok("inspect", self.at("")))


class Files(InFolder):
    def test_C3_outputs_never_clobber(self):
        layer, x = FILES / "linear.safetensors", self.at("x.npy")
        x.write_bytes((FILES / "linear.x.npy").read_bytes())
        out = self.at("out.npy")
        out.write_text("precious")
        run = ["run", layer, x, "--num-heads", 3, "-o"]
        self.refuses(1, f"{out}: already exists; --force overwrites it", *run, out)
        self.assertEqual(out.read_text(), "precious")
        self.refuses(2, f"{x}: is also the input; choose another output", *run, x, "--force")
        link = self.at("link.npy")
        link.symlink_to(x)
        self.refuses(2, f"{link}: is also the input; choose another output", *run, link, "--force")
        self.refuses(1, f"{self.at('no')}/out.npy: No such file or directory", *run,
                     self.at("no") / "out.npy")
        self.ok(*run, out, "--force")
        self.assertEqual(read_npy(out)[0], (2, 7, 24))

    def test_C5_names_of_files(self):
        for name in ("with space.npy", "with\nnewline.npy", "-dash.npy", "ümläut.npy"):
            x = self.at(name)
            x.write_bytes((FILES / "linear.x.npy").read_bytes())
            self.ok("run", FILES / "linear.safetensors", x, "--num-heads", 3, "-o",
                    self.at("y-" + name))
        raw = os.fsencode(self.at("")) + b"/\xff\xfe.npy"
        pathlib.Path(os.fsdecode(raw)).write_bytes((FILES / "linear.x.npy").read_bytes())
        result = subprocess.run([CEPHALO, "inspect", raw], capture_output=True)
        self.assertEqual(result.returncode, 0)
        self.refuses(1, f"{'x' * 4096}: File name too long", "inspect", "x" * 4096)

    def test_W16_an_index_leads_nowhere_else(self):
        index = self.at("model.safetensors.index.json")
        shard = self.at("one.safetensors")
        shard.write_bytes((FILES / "fused.safetensors").read_bytes())
        names = [t["name"] for t in json.loads(self.ok("inspect", shard, "--json"))["tensors"]]
        index.write_text(json.dumps({"weight_map": {n: "one.safetensors" for n in names}}))
        self.ok("run", index, FILES / "fused.x.npy", "-o", self.at("y.npy"), "--num-heads", 3)
        self.assertEqual(read_npy(self.at("y.npy"))[0], (2, 7, 24))
        for evil in ("../../etc/x.safetensors", "/etc/x.safetensors", "..", "", "x.bin"):
            index.write_text(json.dumps({"weight_map": {"a": evil}}))
            self.refuses(1, f"{index}: weight_map: a: \"{evil}\" is not the plain name of a "
                            ".safetensors file", "inspect", index)
        index.write_text(json.dumps({"weight_map": {"a": "none.safetensors"}}))
        self.refuses(1, f"{self.at('none.safetensors')}: No such file or directory", "inspect",
                     index)
        index.write_text(json.dumps({"weight_map": {"a": "one.safetensors"}}))
        self.refuses(1, f"{index}: out_proj.bias: is in one.safetensors, but the index does not "
                        "mention it", "inspect", index)
        index.write_text("[]")
        self.refuses(1, f"{index}: is not an index: it has no weight_map", "inspect", index)

    def test_lying_headers_cost_nothing(self):
        """Refused in less than 64 MiB whatever the header claims."""
        huge = self.at("huge.safetensors")
        header = b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
        huge.write_bytes(len(header).to_bytes(8, "little") + header)
        limited = f"ulimit -v {'unlimited' if SANITIZED else 400000}; exec {CEPHALO} inspect {huge}"
        result = subprocess.run(["bash", "-c", limited], capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, f"error: {huge}: tensors end at byte 4000000000000 of the "
                                        "data, the file has 0\n")

    def test_large_hostile_json_is_refused_in_bounded_time_and_memory(self):
        index = self.at("model.safetensors.index.json")
        index.write_bytes(b'{"a":' + b"[" * 98_000_000)
        self.refuses_cheaply(index, "objects and arrays nested more than 64 deep at byte 69")
        index.write_bytes(b'{"a":[' + b"[]," * 32_000_000 + b"0]}")
        self.refuses_cheaply(index, "more than 1000000 names and values at byte 2999998")
        index.unlink()
        layer = self.at("layer.safetensors")
        entry = b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[%d,%d]}'
        for header, message in (
                (b"{" + b",".join(entry % (k, 0, 0) for k in range(600_000)) + b"}",
                 "header: more than 5000000 names and values at byte 25797988"),
                (b"{" + b",".join(entry % (k, k % 2, k % 2) for k in range(480_000)) + b"}",
                 "header: more than 5000000 names and values at byte 25797988"),
                (b"{" + b",".join(entry % (k, k % 2, k % 2) for k in range(400_000)) + b"}",
                 "1: begins at 1, 399998 ends at 0: a hole between them"),
                (b'{"__metadata__":{' + b",".join(b'"%d":""' % k for k in range(100_000)) + b"}}",
                 "__metadata__: more than 65536 names"),
                (b'{"__metadata__":{' + b",".join(b'"%d":"%s"' % (k, b"x" * 8_000_000)
                                                  for k in range(10)) + b"},3}",
                 "header: not valid UTF-8 JSON at byte 80000097"),
                (b'{"' + b"a" * 86_000_000 + b'":{}}',
                 "header: a name or value of more than 8388608 bytes at byte 8388619")):
            layer.write_bytes(with_length(header))
            self.refuses_cheaply(layer, message)

    def test_names_in_a_file_cannot_fill_or_turn_the_screen(self):
        layer = self.at("layer.safetensors")
        layer.write_bytes(with_length(b'{"' + b"a" * 5_000_000 + b'":{"dtype":1}}'))
        self.refuses_cheaply(layer, "a" * 100 + "... (5000000 bytes): a name may have 1024 bytes at "
                                    "most")
        layer.write_bytes(with_length('{"a\u202eb\x1b":{"dtype":1}}'.replace("\x1b", "\\u001b")
                                      .encode()))
        self.refuses_cheaply(layer, "a?b?: dtype: the number 1 does not belong here")
        layer.write_bytes(with_length('{"a\u202eb":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
                                      .encode()))
        self.assertIn("  a?b ", self.ok("inspect", layer))
        layer.write_bytes(with_length(b"{}\0anything"))
        self.refuses_cheaply(layer, "header: not valid UTF-8 JSON at byte 11")

    def test_shards_with_many_tensors_open_soon(self):
        count = 120_000
        entries = (f'"layers.{k}.w":{{"dtype":"U8","shape":[1],"data_offsets":[{k},{k + 1}]}}'
                   for k in range(count))
        self.at("m-1.safetensors").write_bytes(
            with_length(("{" + ",".join(entries) + "}").encode()) + bytes(count))
        index = self.at("m.safetensors.index.json")
        index.write_text(json.dumps({"weight_map": {f"layers.{k}.w": "m-1.safetensors"
                                                    for k in range(count)} | {"x": "m-1.safetensors"}}))
        self.refuses_cheaply(index, "x: is not in m-1.safetensors")

    def test_a_pickle_is_refused(self):
        for name in ("layer.pt", "layer.safetensors"):
            self.at(name).write_bytes(b"PK\x03\x04" + bytes(40))
            result = cephalo("inspect", self.at(name))
            self.assertEqual(result.returncode, 1)
            self.assertIn("which can run code when it is read; convert it once with", result.stderr)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
