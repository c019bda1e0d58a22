"""Text to ids to windows: word tokenizers, BPE, token files, batches."""

import pathlib
import signal
import threading

import numpy as np
import pytest

import cephalo

TOKENIZER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "files" / "tokenizer"
TEXT = "the cat sat on the mat. the dog sat on the log; the cat saw the dog. " * 8
SPECIAL = "<|endoftext|>"


def small_bpe(vocab_size=280):
    trainer = cephalo.BpeTrainer(vocab_size)
    trainer.add_text(TEXT)
    return trainer.train()


def test_words_are_split_as_the_book_splits_them():
    assert cephalo.split_words("Hello, world. Is this-- a test?") == [
        "Hello", ",", "world", ".", "Is", "this", "--", "a", "test", "?"]


def test_v1_refuses_words_that_v2_reads_as_unknown():
    first, second = (cephalo.WordTokenizer("The cat sat.", version) for version in ("v1", "v2"))
    assert first.words == [".", "The", "cat", "sat"] and first.vocab_size == 4
    assert second.words[-2:] == [SPECIAL, "<|unk|>"]
    assert first.decode(first.encode("The cat.")) == "The cat."
    assert second.decode(second.encode("The dog sat.")) == "The <|unk|> sat."
    with pytest.raises(ValueError, match="dog"):
        first.encode("The dog")
    with pytest.raises(ValueError, match='version is "v3"; it must be one of "v1", "v2"'):
        cephalo.WordTokenizer("a", "v3")


def test_files_of_gpt_2_are_read():
    bpe = cephalo.Bpe.load(TOKENIZER)
    assert bpe.encode("The cat isn't here") == [292, 276, 314, 77, 293, 220, 71, 264, 68]
    assert len(bpe) == bpe.vocab_size == 420 and "vocab_size=420" in repr(bpe)
    again = cephalo.Bpe.load(TOKENIZER / "vocab.json", TOKENIZER / "merges.txt")
    parsed = cephalo.Bpe.parse((TOKENIZER / "vocab.json").read_text(),
                               (TOKENIZER / "merges.txt").read_bytes())
    assert again.fingerprint == parsed.fingerprint == bpe.fingerprint
    with pytest.raises(ValueError, match="vocab"):
        cephalo.Bpe.load(TOKENIZER, model_vocab_size=10)
    with pytest.raises(OSError, match="nowhere"):
        cephalo.Bpe.load("nowhere")


@pytest.mark.parametrize("text", ["", "naïve café", "日本語 🙂", b"\xff\x00\xc3", "tab\tand\nline", SPECIAL])
def test_every_byte_comes_back(text):
    bpe = small_bpe()
    raw = text if isinstance(text, bytes) else text.encode()
    ids = bpe.encode(text)
    assert bpe.decode_bytes(ids) == raw and bpe.decode_bytes(np.array(ids, np.int64)) == raw
    assert bpe.decode(ids) == raw.decode("utf-8", "replace")


def test_bytes_that_are_no_text_are_the_callers_choice():
    bpe = small_bpe()
    with pytest.raises(UnicodeDecodeError):
        bpe.decode(bpe.encode(b"\xff"), errors="strict")
    with pytest.raises(UnicodeEncodeError):
        bpe.encode("\ud800")


def test_special_tokens_are_found_where_they_are_allowed():
    bpe = small_bpe()
    assert bpe.special_tokens == [SPECIAL] and bpe.find(SPECIAL) == bpe.vocab_size - 1
    assert bpe.encode(SPECIAL, allowed_special=[SPECIAL]) == [bpe.find(SPECIAL)]
    assert len(bpe.encode(SPECIAL)) > 1
    assert bpe.find("nowhere to be found") is None
    with pytest.raises(ValueError, match="<none>"):
        bpe.encode("a", allowed_special=["<none>"])


def test_a_bpe_from_memory_is_the_one_it_was(tmp_path):
    bpe = small_bpe()
    made = cephalo.Bpe([bpe.token(id) for id in range(len(bpe))], bpe.merges)
    bpe.save(tmp_path / "vocabulary")
    loaded = cephalo.Bpe.load(tmp_path / "vocabulary")
    assert made.fingerprint == loaded.fingerprint == bpe.fingerprint
    assert (tmp_path / "vocabulary" / "vocab.json").read_text() == bpe.vocab_json()
    with pytest.raises((OSError, ValueError), match="vocab"):
        bpe.save(tmp_path / "vocabulary")
    bpe.save(tmp_path / "vocabulary", replace=True)
    with pytest.raises(IndexError, match="outside the vocabulary of 276"):
        bpe.token(276)
    with pytest.raises(ValueError, match="decode: id 276"):
        bpe.decode([5, 276])
    with pytest.raises(ValueError, match="99999999999"):
        bpe.decode([99999999999])


def test_a_trainer_reads_files_and_tells_how_far_it_is(tmp_path):
    (tmp_path / "corpus.txt").write_text(TEXT)
    told = []
    trainer = cephalo.BpeTrainer(280)
    trainer.add_file(tmp_path / "corpus.txt", progress=lambda done, all: told.append((done, all)))
    assert told[-1] == (len(TEXT), len(TEXT))
    assert trainer.train().fingerprint == small_bpe().fingerprint
    with pytest.raises(TypeError, match="progress must be a function"):
        trainer.train(progress=3)


def test_what_a_progress_function_raises_reaches_the_caller(tmp_path):
    (tmp_path / "corpus.txt").write_text(TEXT)
    trainer = cephalo.BpeTrainer(280)

    def complain(done, all):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        trainer.add_file(tmp_path / "corpus.txt", progress=complain)
    with pytest.raises(ValueError, match="BpeTrainer: it is being changed"):
        trainer.add_file(tmp_path / "corpus.txt", progress=lambda *_: trainer.add_text("more"))


def test_encoding_releases_the_gil():
    """A thread that counts goes on counting while a long text is encoded."""
    bpe, text, ticks, done = small_bpe(), TEXT * 4000, [0], threading.Event()

    def count():
        while not done.is_set():
            ticks[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = ticks[0]
    ids = bpe.encode(text)
    counted = ticks[0] - before
    done.set()
    thread.join()
    assert len(ids) > 100_000 and counted > 100


def test_a_token_file_has_the_ids_of_its_texts(tmp_path):
    bpe = small_bpe()
    texts = [tmp_path / "a.txt", tmp_path / "b.txt"]
    texts[0].write_text(TEXT)
    texts[1].write_text("the dog")
    end = bpe.find(SPECIAL)
    path = tmp_path / "corpus.tokens"
    count = cephalo.write_token_file(bpe, texts, path, before_each_file=end)
    expected = [end, *bpe.encode(TEXT), end, *bpe.encode("the dog")]
    file = cephalo.TokenFile(path, bpe)
    assert count == len(file) == file.tokens == len(expected) and file.vocab_size == len(bpe)
    assert file.read().tolist() == expected and file.read(3, 4).tolist() == expected[3:7]
    assert file.fingerprint == bpe.fingerprint
    with pytest.raises(ValueError, match="vocabular"):
        cephalo.TokenFile(path, small_bpe(270))
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    (tmp_path / "flipped").write_bytes(data)
    with pytest.raises(ValueError, match="checksum"):
        cephalo.TokenFile(tmp_path / "flipped")


def test_windows_are_batches_of_inputs_and_targets():
    windows = cephalo.Windows(np.arange(21), context_length=4, stride=2, batch=3)
    assert len(windows) == windows.batches_per_epoch == 3 and windows.count == 9
    inputs, targets = windows[0]
    assert inputs.dtype == np.int64 and inputs.tolist() == [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7]]
    assert np.array_equal(targets, inputs + 1)
    assert [batch.inputs[0, 0] for batch in windows] == [0, 6, 12]
    assert np.array_equal(windows[-1].inputs, windows[2].inputs)
    assert windows.row(1).tolist() == [2, 3, 4, 5, 6]
    assert windows.after(0, 2) == (1, 0) and np.array_equal(windows.batch(1, 0).inputs, inputs)
    with pytest.raises(IndexError):
        windows[3]
    with pytest.raises(ValueError, match="epoch 0, batch 3 does not exist"):
        windows.batch(0, 3)


def test_shuffled_epochs_hold_the_same_windows_in_another_order():
    windows = cephalo.Windows(list(range(100)), context_length=4, batch=4, shuffle=True, seed=1)
    epochs = [[windows.batch(epoch, b).inputs[:, 0].tolist() for b in range(len(windows))]
              for epoch in (0, 1)]
    assert epochs[0] != epochs[1]
    assert sorted(sum(epochs[0], [])) == sorted(sum(epochs[1], [])) == list(range(0, 96, 4))


def test_ranges_and_kinds_of_windows(tmp_path):
    kept, last = cephalo.split_tokens(100, 0.2)
    assert (kept, last) == ((0, 80), (80, 100))
    assert cephalo.Windows(np.arange(100), 4, range=last)[0].inputs[0, 0] == 80
    plain = cephalo.Windows(memoryview(np.arange(20)), 4)[0].inputs
    assert isinstance(plain, cephalo.Array) and plain.tolist() == [[0, 1, 2, 3]]
    with pytest.raises(ValueError, match="id 9"):
        cephalo.Windows(np.arange(10), 4, vocab_size=9)
    with pytest.raises(TypeError, match="Windows: source are float64, int32 or int64 is needed"):
        cephalo.Windows(np.ones(10), 4)
    with pytest.raises(ValueError, match='order is "random"'):
        cephalo.Windows(np.arange(10), 4, order="random")


def test_ctrl_c_ends_a_long_tokenisation(tmp_path):
    (tmp_path / "corpus.txt").write_text(TEXT * 2000)
    trainer = cephalo.BpeTrainer(280)
    with pytest.raises(KeyboardInterrupt):
        trainer.add_file(tmp_path / "corpus.txt", progress=lambda *_: signal.raise_signal(signal.SIGINT))
