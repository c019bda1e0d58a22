#!/usr/bin/env python3
"""Our tokenizer beside the tokenizers package, GPT-2's vocabulary, one thread each.

    tokenizer.py [FILE...]     books, tokenised in portions of 2,000 bytes; else docs/ of this project

Turns as in timing.py. The package is asked in its quickest way: a list of texts, ids without offsets
(encode_batch_fast). make bench-tokenizer does it all.
"""

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import pathlib
import sys
import tempfile

import timing

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/golden"))

import compare_tokenizer  # noqa: E402
import texts as made_texts  # noqa: E402
import tokenizer_peer  # noqa: E402

ROUNDS = 15
BYTES = 1_000_000  # of each kind of text
PORTION = 2000


def portions(paths):
    """Texts of about PORTION bytes that end with a line."""
    found, text, size = [], "", 0
    for path in paths:
        for line in pathlib.Path(path).read_text(errors="replace").replace("\0", "").splitlines(True):
            text += line
            if len(text) >= PORTION:
                size += len(text.encode())
                found.append(text)
                text = ""
            if size >= BYTES:
                return found
    return found + [text] * bool(text)


def scripts():
    """Texts in many scripts, which no cache holds."""
    parts = []
    for text in made_texts.texts(20_000, seed=2):
        parts.append(text.decode("utf-8", "ignore").replace("\0", ""))
    joined = "".join(parts)[:BYTES // 3]
    return [joined[at:at + PORTION] for at in range(0, len(joined), PORTION)]


def row(name, texts, ours, peer):
    size = sum(len(text.encode()) for text in texts)
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(text.encode() + b"\0" for text in texts))
        file.flush()
        assert int(ours.ask(f"texts {file.name}")) == len(texts)
    tokens = int(ours.ask("time").split()[1])
    assert tokens == sum(len(found.ids) for found in peer.encode_batch_fast(texts))
    times = timing.alternate({"ours": lambda: ours.ask("time"),
                              "peer": lambda: peer.encode_batch_fast(texts)}, ROUNDS)
    found = timing.compare(times["ours"], times["peer"])
    print(f"{name:<8} {size / 1e6:5.2f} MB {tokens:7} tokens   cephalo {size / found['cephalo_ms'] / 1e3:6.1f} MB/s"
          f"   tokenizers {size / found['peer_ms'] / 1e3:5.1f} MB/s   best/best {found['best_ratio']:5.1f} x"
          f"   median {found['median_ratio']:5.1f} x", flush=True)


def main():
    folder = compare_tokenizer.vocabulary()
    ours = compare_tokenizer.Ours(folder)
    peer = tokenizer_peer.load(folder / "encoder.json", folder / "vocab.bpe")
    row("text", portions(sys.argv[1:] or sorted(ROOT.glob("docs/*.md"))), ours, peer)
    row("code", portions(sorted(ROOT.glob("cephalo/**/*.cc"))), ours, peer)
    row("scripts", scripts(), ours, peer)


if __name__ == "__main__":
    main()
