#!/usr/bin/env python3
"""Each head removed in turn, beside TransformerLens: the built-in model, 4 layers of 8 heads, 256 tokens.

    effects.py [--rounds 15] [--threads 2] [--tokens 256] [--memory]

Two questions: by how much does the difference of two logits at the last token change, and by how much the
loss of every token? TransformerLens is asked as its users do it: a hook on hook_z that zeroes the head, under
inference_mode, nothing cached. Ours starts from model and ids: matrices are laid out and the text is read in
the time that is measured. Each library has a process of its own, so that the peaks of memory are its own; turns as
in timing.py. make bench-effects does it all.
"""

import argparse
import pathlib
import subprocess
import sys
import time

import timing

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/transformer_lens"))

QUESTIONS = {"last": "logit difference of the last token", "losses": "loss of every token"}
LIBRARIES = ("cephalo", "lens")
WORDS = (17, 42)  # whose logits are compared


def text_ids(gpt, tokens):
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    ids = gpt.encode(text * (1 + tokens // 100), begin=True)
    return ids[:tokens]


def cephalo_sweeps(gpt, ids, threads):
    import cephalo

    def sweep(**measured):
        text = cephalo.KeptPass(gpt, ids, threads=threads)
        return text.measure_each(cephalo.each_head(gpt), threads=threads, **measured)

    return {"last": lambda: [one.logits[0] - one.logits[1] for one in sweep(logits=list(WORDS))],
            "losses": lambda: [sum(one.losses) / len(one.losses) for one in sweep(losses=True)]}


def lens_sweeps(gpt, ids, threads):
    import torch
    from lens_models import lens_model

    torch.set_num_threads(threads)  # after lens_models, which wants one
    model = lens_model(gpt)
    tokens = torch.tensor([ids])

    def sweep(read, **options):
        found = []
        with torch.inference_mode():
            for layer in range(model.cfg.n_layers):
                for head in range(model.cfg.n_heads):
                    def zero(z, hook, head=head):
                        z[:, :, head] = 0.0
                        return z

                    hooks = [(f"blocks.{layer}.attn.hook_z", zero)]
                    found.append(float(read(model.run_with_hooks(tokens, fwd_hooks=hooks, **options))))
        return found

    return {"last": lambda: sweep(lambda logits: logits[0, -1, WORDS[0]] - logits[0, -1, WORDS[1]]),
            "losses": lambda: sweep(lambda losses: losses.mean(), return_type="loss", loss_per_token=True)}


def status(field):
    """A line of /proc/self/status in MiB."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    return 0.0


def extra_mib(call):
    """The most memory that a call takes beyond what is there."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = status("VmRSS")
    call()
    return status("VmHWM") - before


def worker(library, tokens, threads):
    """Answers line by line: QUESTION runs a sweep, "memory QUESTION" says what that takes, and all in all."""
    import cephalo

    gpt = cephalo.builtin_model()
    make = cephalo_sweeps if library == "cephalo" else lens_sweeps
    sweeps = make(gpt, text_ids(gpt, tokens), threads)
    for line in sys.stdin:
        *memory, question = line.split()
        if memory:
            print(extra_mib(sweeps[question]), status("VmHWM"), flush=True)
        else:
            print(*sweeps[question](), flush=True)


class Worker:
    """A library in a process of its own."""

    def __init__(self, library, arguments):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", library, "--tokens", str(arguments.tokens),
             "--threads", str(arguments.threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return [float(word) for word in self.process.stdout.readline().split()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def memory_of(library, question, arguments):
    """Of a first sweep: later ones find memory that allocators have kept."""
    with Worker(library, arguments) as fresh:
        return fresh.ask("memory " + question)


def row(question, ours, peer, arguments):
    here, there = ours.ask(question), peer.ask(question)
    apart = max(abs(a - b) for a, b in zip(here, there, strict=True))
    assert len(here) == 32 and apart < 1e-3, apart
    times = timing.alternate({"ours": lambda: ours.ask(question), "peer": lambda: peer.ask(question)},
                             arguments.rounds)
    found = timing.compare(times["ours"], times["peer"])
    print(f"{QUESTIONS[question]:<36} cephalo {found['cephalo_ms']:6.1f} ms   TransformerLens "
          f"{found['peer_ms']:7.1f} ms   best/best {found['best_ratio']:5.1f} x   median {found['median_ratio']:5.1f} x"
          f"   apart {apart:.0e}", flush=True)
    if arguments.memory:
        (ours_mib, ours_all), (peer_mib, peer_all) = (memory_of(library, question, arguments) for library in LIBRARIES)
        print(f"{'':<36} memory  {ours_mib:6.0f} MiB (process {ours_all:.0f})   {peer_mib:.0f} MiB "
              f"(process {peer_all:.0f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--memory", action="store_true", help="peaks of memory too, in processes of their own")
    parser.add_argument("--worker", choices=LIBRARIES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments.worker, arguments.tokens, arguments.threads)
    begin = time.perf_counter()
    with Worker("cephalo", arguments) as ours, Worker("lens", arguments) as peer:
        for question in QUESTIONS:
            row(question, ours, peer, arguments)
    print(f"{arguments.tokens} tokens, {arguments.threads} threads, {arguments.rounds} rounds, "
          f"{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
