"""The contract that every bad file is judged by, row by row: exit status 1, one line on stderr that
begins with the file, nothing on stdout, nothing written, within 2 s and 64 MiB + 2 x its size."""

import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

CEPHALO = sys.argv[1]
SANITIZED = "--sanitized" in sys.argv  # sanitizers take memory and time of their own
SECONDS = 10.0 if SANITIZED else 2.0
FILES = pathlib.Path(__file__).resolve().parents[1] / "golden/files"


def tensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def one(dtype="F32", shape=(1,), offsets=(0, 4), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def array(header, data=b"", version=(1, 0), length=None):
    text = header.encode() + b"\n"
    width = 2 if version[0] == 1 else 4
    size = (len(text) if length is None else length).to_bytes(width, "little")
    return b"\x93NUMPY" + bytes(version) + size + text + data


def npy(descr="'<f4'", order="False", shape="(1,)", data=b"1234"):
    return array(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}", data)


TWICE = json.dumps({"a": one()})[:-1]
BAD_TENSORS = {
    "W1": [b"", b"1234567"],
    "W2": [tensors(b"{}", length=2**64 - 1), tensors(b"{}", length=100_000_001),
           tensors(b"{}", length=3)],
    "W3": [tensors(b'{"\xff": 1}'), tensors(b"no json"), tensors(b"[]"),
           tensors(b"[" * 100_000), tensors(b'{"a":' * 100_000)],
    "W4": [tensors(f'{TWICE}, {TWICE[1:]}}}'.encode(), b"1234"),
           tensors(f'{TWICE}, {TWICE[1:]}}}'.replace('"a"', '"\\u0061"', 1).encode(), b"1234")],
    "W5": [tensors({"a": one(), "b": one(offsets=(2, 6))}, b"123456"),
           tensors({"a": one(), "b": one(offsets=(6, 10))}, b"1234567890")],
    "W6": [tensors(json.dumps({"a": one(offsets=o)}).encode(), b"1234")
           for o in ((4, 0), (-4, 0), (0, 1.5), (0, "12"), (0, 2**64))],
    "W7": [tensors({"a": one(shape=s, offsets=(0, 0))})
           for s in ((2, 2**63), (2**32, 2**32), (2**62,))],
    "W8": [tensors({"a": one(shape=(2, 3), offsets=(0, 20))}, bytes(20))],
    "W9": [tensors({"a": one()}, b"12345"), tensors({"a": one()}, b"123")],
    "W10": [tensors({"a": one(dtype="F4")}, b"1234"), tensors({"a": one(dtype="f32")}, b"1234"),
            tensors({"a": {"shape": [1], "data_offsets": [0, 4]}}, b"1234"),
            tensors({"__metadata__": {"k": 3}}), tensors({"__metadata__": {"k": {}}})],
    "P1": [b"PK\x03\x04" + bytes(100), b"\x80\x02}q\x00."],
}
BAD_LAYERS = {  # whole files, but no layers
    "W11": [tensors({"W_query.weight": one(shape=(1, 1))}, b"1234"),
            tensors({"W_query": one(shape=(1, 1)), "surprise": one(offsets=(4, 8))}, b"12345678"),
            tensors({"something": one()}, b"1234")],
}
BAD_ARRAYS = {
    "T1": [b"", b"\x93NUMPX\x01\x00", npy()[:6] + b"\x01\x01" + npy()[8:],
           npy()[:6] + b"\x04\x00" + npy()[8:], npy()[:6] + b"\xff\xff" + npy()[8:]],
    "T2": [array("x" * 80, version=(2, 0), length=0xFFFFFFFF)],
    "T3": [array("[]"), array("{'descr': '<f4', 'fortran_order': False}"),
           array("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}"),
           array("{'evil': 1}"), array("__import__('os')"), npy()[:-5] + b" 1234"],
    "T4": [npy(shape=s) for s in ("(-1,)", "(True,)", "(1.0,)", "[1]", "(9223372036854775808,)",
                                  "(" + "1, " * 65 + ")", "(4294967296, 4294967296)")],
    "T5": [npy(descr=d) for d in ("'|O'", "'<U8'", "'>f4'", "[('a', '<f4')]")],
    "T6": [npy(data=b"123"), npy(data=b"12345")],
    "T7": [npy(shape="()")],
    "P1": [b"PK\x03\x04" + bytes(100)],
}

VOCABULARY = json.loads((FILES / "tokenizer/vocab.json").read_text())


def vocab(without=None, **changes):
    content = {token: id for token, id in VOCABULARY.items() if token != without}
    return json.dumps({**content, **changes}).encode()


BAD_VOCABULARIES = {
    "K1": [b"", b"[]", b"3", b'{"a": {}}', b"[" * 100_000, b'{"a":' * 100_000, b'{"a\xff": 0}',
           b'{"a": 0, "a": 1}', vocab(the=-1), vocab(the=1.5), vocab(the=2**31), vocab(the=2**64),
           vocab(the="1"), vocab(the=None), vocab(the=0), vocab(the=1000),
           b'{"t":0' + b',"t":0' * 1_000_000 + b"}", bytes((32 << 20) + 1)],
    "K4": [b"{}", vocab(without="\u0120", **{"<|endoftext|>": VOCABULARY["\u0120"]})],
}
BAD_MERGES = {
    "K2": [b"the\n", b"t h e\n", b"t\th\n", b"t  h\n", b" t h\n", b"t h\nt h\n", b"\xff\n",
           b"x" * 1_000_000],
    "K3": [b"#version: 0.2\nqq q\n", b"q q\n", b"t qq\n"],
}


class Contract(unittest.TestCase):
    def judge(self, name, content, *command, folder=None):
        with tempfile.TemporaryDirectory() as empty:
            folder = folder or empty
            path = pathlib.Path(folder) / name
            if content is not None:
                path.write_bytes(content)
            before = sorted(os.listdir(folder))
            words = [str(w).replace("FILE", str(path)).replace("FOLDER", folder) for w in command]
            start = time.monotonic()
            result = subprocess.run([CEPHALO, *words], capture_output=True, timeout=20)
            self.assertLess(time.monotonic() - start, SECONDS)
            error = result.stderr.decode()
            self.assertEqual(result.returncode, 1, error)
            self.assertEqual(result.stdout, b"")
            self.assertEqual(error.count("\n"), 1, error)
            self.assertRegex(error, f"^error: {re.escape(str(path))}(:[0-9]+)?: ")
            self.assertEqual(sorted(os.listdir(folder)), before)
            if content is not None:
                self.assertEqual(path.read_bytes(), content)
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
            self.assertLess(0 if SANITIZED else peak, (64 << 20) + 2 * len(content or b""))

    def test_files_of_tensors(self):
        for row, contents in BAD_TENSORS.items():
            for number, content in enumerate(contents):
                with self.subTest(row=row, number=number):
                    self.judge("x.safetensors", content, "inspect", "FILE")
                    self.judge("x.safetensors", content, "convert", "FILE", "FOLDER/out", "--to",
                               "fused", "--num-heads", "1")

    def test_files_that_are_no_layers(self):
        for row, contents in BAD_LAYERS.items():
            for number, content in enumerate(contents):
                with self.subTest(row=row, number=number):
                    self.judge("x.safetensors", content, "run", "FILE", FILES / "raw.x.npy", "-o",
                               "FOLDER/out", "--num-heads", "1")

    def test_arrays(self):
        for row, contents in BAD_ARRAYS.items():
            for number, content in enumerate(contents):
                with self.subTest(row=row, number=number):
                    self.judge("x.npy", content, "run", FILES / "raw.safetensors", "FILE", "-o",
                               "FOLDER/out")

    def test_vocabularies(self):
        for row, contents in BAD_VOCABULARIES.items():
            for number, content in enumerate(contents):
                with self.subTest(row=row, number=number):
                    with tempfile.TemporaryDirectory() as folder:
                        shutil.copy(FILES / "tokenizer/merges.txt", folder)
                        self.judge("vocab.json", content, "tokenize", "a", "--vocab", "FOLDER",
                                   folder=folder)

    def test_merges(self):
        for row, contents in BAD_MERGES.items():
            for number, content in enumerate(contents):
                with self.subTest(row=row, number=number):
                    with tempfile.TemporaryDirectory() as folder:
                        shutil.copy(FILES / "tokenizer/vocab.json", folder)
                        self.judge("merges.txt", content, "tokenize", "a", "--vocab", "FOLDER",
                                   folder=folder)

    def test_W14_paths_that_are_no_files(self):
        self.judge("none", None, "inspect", "FILE")
        for path in ("/dev/zero", "/tmp"):
            result = subprocess.run([CEPHALO, "inspect", path], capture_output=True, text=True,
                                    timeout=5)
            self.assertEqual(result.returncode, 1)
            self.assertTrue(result.stderr.startswith(f"error: {path}: is a "))
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(f"{folder}/pipe")
            result = subprocess.run([CEPHALO, "inspect", f"{folder}/pipe"], capture_output=True,
                                    text=True, timeout=5)
            self.assertEqual(result.stderr, f"error: {folder}/pipe: is a pipe, not a file\n")

    def test_W13_nan_is_a_warning_and_strictly_an_error(self):
        nan = b"\x00\x00\xc0\x7f"
        content = tensors({f"W_{n}": one(shape=(1, 1), offsets=(4 * i, 4 * i + 4))
                           for i, n in enumerate(("query", "key", "value"))}, nan + b"\0" * 8)
        self.judge("x.safetensors", content, "convert", "FILE", "FOLDER/out", "--to", "fused",
                   "--strict")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "x.safetensors"
            path.write_bytes(content)
            result = subprocess.run([CEPHALO, "convert", path, f"{folder}/out", "--to", "fused"],
                                    capture_output=True, text=True)
            self.assertEqual(result.returncode, 0)
            self.assertEqual(result.stderr,
                             f"warning: {path}: W_query: 1 numbers are NaN or infinite\n")

    def test_C3_a_dash_is_no_file(self):
        result = subprocess.run([CEPHALO, "run", FILES / "raw.safetensors", FILES / "raw.x.npy", "-o",
                                 "-"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stderr, "error: '-' is not a file name here; ./- is one\n")


class ClosedStreams(unittest.TestCase):
    """A stream that is closed lends its number to no file."""

    def run_with(self, redirection, *words, **how):
        return subprocess.run(["bash", "-c", f'exec "$@" {redirection}', "bash", CEPHALO,
                               *map(str, words)], capture_output=True, text=True, timeout=60, **how)

    def test_closed_stdout_is_an_error(self):
        for words in (("--version",), ("--help",), ("trace",), ("presets",),
                      ("inspect", FILES / "raw.safetensors")):
            result = self.run_with(">&-", *words)
            self.assertEqual(result.returncode, 1, words)
            self.assertEqual(result.stderr, "error: stdout: the output could not be written\n", words)

    def test_a_full_device_is_an_error(self):
        result = self.run_with(">/dev/full", "trace")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "error: stdout: the output could not be written\n")

    def test_closed_stdin_and_stderr_change_nothing(self):
        expected = self.run_with("", "trace")
        for redirection in ("<&-", "2>&-", "<&- 2>&-"):
            result = self.run_with(redirection, "trace")
            self.assertEqual((result.returncode, result.stdout), (0, expected.stdout))
        self.assertEqual(self.run_with("2>&-", "inspect", "/nowhere").returncode, 1)

    def test_a_closed_stdin_is_no_text(self):
        result = self.run_with("<&-", "generate", "-")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertEqual(result.stderr, "error: stdin: could not be read\n")

    def test_nothing_is_printed_into_files(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "text.txt"
            text.write_text("The cat sat on the mat. The dog sat on the log. " * 40)
            for number, redirection in enumerate((">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-")):
                out = pathlib.Path(folder) / str(number)
                result = self.run_with(redirection, "train", text, "--out", out, "--steps", 2,
                                       "--d-model", 16, "--num-layers", 1, "--context-length", 16)
                self.assertEqual(result.returncode, 1 if ">&-" in redirection.replace("2>&-", "")
                                 else 0, redirection)
                self.assertEqual((out / "lock").read_bytes(), b"", redirection)
            layer = FILES / "raw.safetensors"
            for number, redirection in enumerate((">&-", "2>&-", "<&- >&- 2>&-")):
                out = pathlib.Path(folder) / f"{number}.npy"
                self.run_with(redirection, "run", layer, FILES / "raw.x.npy", "-o", out)
                self.assertEqual(out.read_bytes()[:6], b"\x93NUMPY", redirection)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
