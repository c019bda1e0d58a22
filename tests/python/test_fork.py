"""A fork while another thread is inside of a call: the child is told, and never waits."""

import os
import signal
import threading
import time

import numpy as np

import cephalo

RULE = ("another thread was using it when this process was forked, and that thread is not here to "
        "finish; fork while nobody uses it, or make a new one here")


def said(call):
    """What a call says: the text of its error, or that it worked."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return "worked"


def in_child(calls, seconds=30):
    """What each call says in a forked child, which is killed if it takes longer."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        os.write(write, "\n".join(said(call) for call in calls).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        lines = pipe.read().split("\n")
    assert os.waitpid(child, 0)[1] == 0, "the child waited for a thread that it has not"
    return lines


class Inside:
    """A thread inside of call(wait): it waits there, in a callback, until the with block ends."""

    def __init__(self, call):
        self.reached, self.leave = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=call, args=(self._wait,))

    def _wait(self):
        self.reached.set()
        self.leave.wait(60)

    def __enter__(self):
        self.thread.start()
        assert self.reached.wait(60)

    def __exit__(self, *_):
        self.leave.set()
        self.thread.join()


class Computing:
    """A thread inside of a call that computes for a second or more."""

    def __init__(self, call):
        self.thread = threading.Thread(target=call)

    def __enter__(self):
        self.thread.start()
        time.sleep(0.2)
        assert self.thread.is_alive(), "the call is over before the fork"

    def __exit__(self, *_):
        self.thread.join()


def small_gpt():
    return cephalo.Gpt(20, 8, 8, 2, 1, seed=1)


def test_a_model_that_was_being_changed():
    gpt, other = small_gpt(), small_gpt()
    name = list(gpt.parameters)[-1]
    value = np.array(gpt.parameters[name])

    with Inside(lambda wait: gpt.update_all(lambda name, parameter: wait())):
        lines = in_child([lambda: gpt([1, 2]), lambda: gpt.update(name, value),
                          lambda: gpt.generate([1], 2), lambda: other([1, 2]),
                          lambda: other.update(name, value)])
    assert lines == [f"Gpt: {RULE}"] * 3 + ["worked"] * 2
    gpt([1, 2])  # the parent's goes on


def test_a_trainer_that_was_inside_of_a_step():
    gpt = small_gpt()
    waits = []

    def rows(number):
        waits[0]()
        return np.arange(9)

    trainer = cephalo.Trainer(gpt, rows, batch=1)

    def step(wait):
        waits.append(wait)
        trainer.step()

    with Inside(step):
        lines = in_child([trainer.step, lambda: trainer.steps_done, lambda: gpt([1, 2])])
    assert lines == [f"Trainer: {RULE}", f"Trainer: {RULE}", f"Gpt: {RULE}"]
    assert trainer.steps_done == 1


def test_a_callback_that_forks_may_go_on_with_its_own_call():
    gpt = small_gpt()
    lines = []
    gpt.generate([1], 1, on_token=lambda id: lines.extend(in_child([lambda: gpt([1, 2])])))
    assert lines == ["worked"]


def test_a_layer_that_was_called_can_be_called_but_not_changed():
    layer = cephalo.MultiHeadAttention(64, 64, 0, 0.0, 1, seed=1)
    x = np.ones((1, 24000, 64), np.float32)
    cache = cephalo.KVCache.growing(1, 1, head_dim=64)
    k = np.ones((1, 1, 2, 64), np.float32)
    with Computing(lambda: layer(x, cache=cache, threads=1)):
        lines = in_child([lambda: layer(x[:, :4]), lambda: layer.update("out_proj.bias", x[0, 0]),
                          lambda: cache.append(k, k), lambda: cache.tokens,
                          lambda: cephalo.attend(k, k, k)])
    assert lines == ["worked", f"MultiHeadAttention: {RULE}", f"KVCache: {RULE}",
                     f"KVCache: {RULE}", "worked"]
    assert cache.tokens == 24000


def test_a_generator_that_was_drawing():
    generator = cephalo.TorchGenerator(0)
    with Computing(lambda: generator.randn((1 << 26,))):
        lines = in_child([lambda: generator.randn((3,)),
                          lambda: cephalo.TorchGenerator(0).randn((3,))])
    assert lines == [f"TorchGenerator: {RULE}", "worked"]
