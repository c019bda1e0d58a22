#!/usr/bin/env python3
"""Writes tests/golden/written_by_0.1: what this version of cephalo leaves on disk, with what it
computed from it. Later versions must read these files, so they are never written anew: a change of
a format gets a folder of its own, named after the version that wrote it.

    PYTHONPATH=build/release/python tests/golden/make_written.py build/release/cli/cephalo FOLDER

run/       a training run as Ctrl-C leaves it after some 20 of 300 steps: checkpoints with the
           state of the optimiser, vocabulary, tokens
exported/  the model folder that this run leaves when it is resumed to its end: rotary positions,
           tied head, biases, with the tokenizer
learned/, book/, shards/, half/   model folders in the other kinds of names, types and files
layers/    one attention layer in each form of names that has a place for it
*.npy      inputs and outputs
expected.json   where the run stood, and the losses of its next three steps
"""

import csv
import json
import pathlib
import shutil
import signal
import subprocess
import sys

import numpy as np

import cephalo

RUN = {"steps": 300, "save-every": 1000, "batch": 16, "accumulate": 2, "context-length": 16,
       "d-model": 12, "num-layers": 2, "num-heads": 2, "dropout": 0.1, "vocab-size": 262,
       "learning-rate": 0.01, "warmup": 10, "seed": 5, "validation-share": 0.05,
       "sample-every": 0, "report-every": 1, "threads": 1}
STOP_AFTER = 15  # steps; it takes some more until the program hears of it
FORMS = ("separate", "raw", "heads", "linear", "fused", "torch", "gpt2")


def text():
    """Enough for a vocabulary of 270 tokens; no book of anybody's."""
    animals = ("cat", "dog", "hen", "fox", "owl")
    places = ("house", "garden", "wood", "river")
    return " ".join(f"The {a} went to the {p}, and the {p} was {'cold' if i % 3 else 'warm'}."
                    for i, (a, p) in enumerate((a, p) for a in animals for p in places * 3))


def begin_run(program, folder):
    """A run that is interrupted as a person would."""
    corpus = folder / "corpus.txt"
    corpus.write_text(text())
    flags = [word for key, value in RUN.items() for word in (f"--{key}", str(value))]
    run = subprocess.Popen([program, "train", corpus.name, "-o", "run", *flags], cwd=folder,
                           stdout=subprocess.PIPE, text=True)
    for line in run.stdout:
        if line.startswith(f"step  {STOP_AFTER}/"):
            run.send_signal(signal.SIGINT)
    run.wait()
    corpus.unlink()
    # The checkpoint before the first step, a third of all bytes, shows nothing that this one lacks.
    (folder / "run" / "checkpoints" / "step-00000000.safetensors").unlink()
    return folder / "run"


def end_run(program, run, exported):
    """Goes on with a copy of it -> the losses of all steps; what it exports stays."""
    whole = exported.parent / "whole"
    shutil.copytree(run, whole, symlinks=True)
    subprocess.run([program, "train", "-o", whole.name, "--resume"], cwd=exported.parent,
                   check=True, stdout=subprocess.DEVNULL)
    with open(whole / "loss.csv", newline="") as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file)]
    exported.mkdir()
    for name in ("config.json", "model.safetensors", "vocab.json", "merges.txt"):
        shutil.move(whole / name, exported / name)
    shutil.rmtree(whole)
    return losses


def write_models(folder):
    """Model folders whose every parameter is drawn anew, so that none is 0 or 1 by default."""
    sizes = {"vocab_size": 50, "context_length": 12, "d_model": 16, "num_heads": 2, "num_layers": 1}
    draw = np.random.default_rng(3)

    def model(**more):
        m = cephalo.Gpt(**sizes, seed=1, **more)
        for name, value in m.parameters.items():
            m.update(name, (0.3 * draw.standard_normal(value.shape)).astype(np.float32))
        return m

    learned = model(tied_head=False, qkv_bias=True, dropout=0.1)
    learned.save(folder / "learned")
    learned.save(folder / "book", names="book")
    turned = model(positions="rotary", rotary=cephalo.Rotary(interleaved=True, base=500.0),
                   qkv_bias=False, activation="gelu_erf", norm_epsilon=1e-6, d_mlp=24)
    turned.save(folder / "shards", shard_bytes=4096)
    turned.save(folder / "half", dtype="bfloat16")


def write_layers(folder):
    """A form that has no place for a layer refuses it: another layer stands in for that one."""
    folder.mkdir()
    kinds = {"bias": dict(d_in=12, d_out=8, context_length=16, dropout=0.1, num_heads=2,
                          qkv_bias=True),
             "bare": dict(d_in=12, d_out=8, context_length=0, dropout=0.0, num_heads=1,
                          out_proj=False, causal=False),
             "rotary": dict(d_in=12, d_out=8, context_length=0, dropout=0.0, num_heads=4,
                            num_kv_heads=2, rotary=cephalo.Rotary(interleaved=True)),
             "half": dict(d_in=12, d_out=8, context_length=16, dropout=0.0, num_heads=2,
                          qkv_bias=True, dtype="bfloat16")}
    for seed, (kind, arguments) in enumerate(kinds.items()):
        layer = cephalo.MultiHeadAttention(**arguments, seed=seed)
        layer.eval()
        for form in FORMS:
            path = folder / f"{kind}-{form}.safetensors"
            try:
                layer.save(path, form, with_mask=kind == "bias", allow_rotary=True)
            except ValueError as refusal:
                print(f"{path.name}: {refusal}")


def record(folder):
    """Outputs of everything above, read back from the files."""
    ids = (np.arange(24, dtype=np.int64) * 7 % 50).reshape(2, 12)
    np.save(folder / "ids.npy", ids)
    for name in ("exported", "learned", "book", "shards", "half"):
        np.save(folder / f"{name}.logits.npy", np.asarray(cephalo.Gpt.load(folder / name)(ids)))
    x = np.random.default_rng(4).standard_normal((2, 5, 12)).astype(np.float32)
    np.save(folder / "x.npy", x)
    for path in sorted((folder / "layers").glob("*.safetensors")):
        layer = cephalo.load(path)
        np.save(path.with_suffix(".y.npy"), np.asarray(layer(x)))


def main():
    program, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    folder.mkdir()
    run = begin_run(program, folder)
    losses = end_run(program, run, folder / "exported")
    step = int((run / "checkpoints" / "latest").resolve().stem.split("-")[1])
    write_models(folder)
    write_layers(folder / "layers")
    record(folder)
    (folder / "expected.json").write_text(json.dumps(
        {"step": step, "losses_after": losses[step:step + 3]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
