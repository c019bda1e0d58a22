#!/usr/bin/env python3
"""Writes tokenizer.json, and files/tokenizer/ with a small vocabulary: what the tokenizers package
learns from a text and how it tokenises others, for tests without it.

    pip install tokenizers && tests/golden/make_tokenizer.py
"""

import json
import pathlib

import tokenizers
from tokenizers import Tokenizer, models, trainers

import texts
import tokenizer_peer

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE / "files/tokenizer"
VOCAB_SIZE = 420
MIN_COUNT = 1
SPECIAL = "<|endoftext|>"

# What is learned from. Repetitions and runs make pairs that overlap and counts that are equal.
TEXT = "\n".join([
    "The cat sat on the mat. The dog sat on the cat, and the cat didn't like it: \"It's a dog!\"",
    "Attention is all you need: queries, keys and values; every query looks at every key.",
    "the then they them there these those this that thing think thin in inn inner winner",
    "aaaaaaaaaaaaaaaa aaaa aaa aa a abababab ababab abab ab ba baba", "1 12 123 1234 12345 2024 2025",
    "naïve café Übung über straße", "你好世界 世界你好", "🙂🙂🙂 🙂", "if (x == 0) return x;\n\n    x += 1;\n",
    "The dog and the cat think that the thing in the inn is theirs; they're winners, aren't they?"])


def learn():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = tokenizer_peer.PRE_SPLIT
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - 1, min_frequency=MIN_COUNT, show_progress=False,
        initial_alphabet=tokenizer_peer.PRE_SPLIT.alphabet())
    tokenizer.train_from_iterator([TEXT], trainer)
    FOLDER.mkdir(parents=True, exist_ok=True)
    tokenizer.model.save(str(FOLDER))
    path = FOLDER / "vocab.json"  # the special token comes last, as GPT-2's
    vocabulary = json.loads(path.read_text())
    vocabulary[SPECIAL] = len(vocabulary)
    by_id = sorted(vocabulary.items(), key=lambda item: item[1])
    path.write_text(json.dumps(dict(by_id), ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    learn()
    plain = tokenizer_peer.load(FOLDER / "vocab.json", FOLDER / "merges.txt")
    special = tokenizer_peer.load(FOLDER / "vocab.json", FOLDER / "merges.txt", [SPECIAL])
    cases = [{"bytes": text.hex(), "ids": tokenizer_peer.encode(plain, text)}
             for text in texts.texts(260)]
    allowed = [{"bytes": text.encode().hex(), "ids": special.encode(text).ids} for text in (
        SPECIAL, f"a{SPECIAL}b", f"a {SPECIAL} b", f"a \n{SPECIAL}\n\n b", SPECIAL * 3,
        f"<|endof{SPECIAL}text|>", f"{SPECIAL[:-1]} {SPECIAL}")]
    content = {"tokenizers": tokenizers.__version__, "vocab_size": VOCAB_SIZE,
               "min_count": MIN_COUNT, "text": TEXT, "cases": cases, "allowed": allowed}
    text = json.dumps(content, separators=(",", ":")).replace('{"bytes"', '\n{"bytes"')
    (HERE / "tokenizer.json").write_text(text + "\n")
    print(f"tokenizer.json: {len(text)} bytes, {len(cases)} texts")


if __name__ == "__main__":
    main()
