"""Losses, optimisers, schedules, and the trainer."""

import signal
import threading

import numpy as np
import pytest
from support import normal

import cephalo
from test_gpt import small_gpt

DATA = np.random.default_rng(0).integers(0, 40, 400)
FEW = cephalo.Schedule(learning_rate=1e-2, warmup=2, steps=6)


def windows(**options):
    return cephalo.Windows(DATA, context_length=8, batch=4, shuffle=True, vocab_size=40, **options)


def trainer(gpt=None, **options):
    return cephalo.Trainer(gpt or small_gpt(), windows(), batch=4, context_length=8,
                           **{"schedule": FEW, **options})


def same(a, b):
    return all(np.array_equal(a.parameters[name], b.parameters[name]) for name in a.parameters)


def test_cross_entropy_and_its_gradient():
    logits, targets = normal(5, 7, dtype=np.float64), np.array([0, 6, -100, 3, 3])
    kept = targets >= 0
    softmax = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = -np.log(softmax[kept, targets[kept]]).mean()
    d = np.empty_like(logits)
    assert abs(cephalo.cross_entropy(logits, targets) - expected) <= 1e-12
    assert abs(cephalo.cross_entropy(logits, targets, d) - expected) <= 1e-12
    softmax[kept, targets[kept]] -= 1
    assert np.abs(d - softmax * kept[:, None] / kept.sum()).max() <= 1e-12
    d.flags.writeable = False
    with pytest.raises(ValueError, match="cross_entropy: dlogits is read-only"):
        cephalo.cross_entropy(logits, targets, d)
    with pytest.raises(ValueError, match="targets"):
        cephalo.cross_entropy(logits, targets[:4])


def test_adamw_changes_parameters_where_they_lie():
    p, g = normal(3, 4, dtype=np.float64), normal(3, 4, seed=1, dtype=np.float64)
    expected, state = p.copy(), cephalo.AdamWState()
    assert state.step == 0 and state.mean is None
    mean, square = 0.0, 0.0
    for step in (1, 2, 3):
        cephalo.adamw_step(p, g, state, learning_rate=0.1, weight_decay=0.02)
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        expected -= 0.1 * 0.02 * expected
        expected -= 0.1 * (mean / (1 - 0.9 ** step)) / (np.sqrt(square / (1 - 0.999 ** step)) + 1e-8)
    assert state.step == 3 and np.abs(state.mean - mean).max() <= 1e-12
    assert np.abs(p - expected).max() <= 1e-12
    with pytest.raises(ValueError, match="adamw_step: parameter is read-only"):
        cephalo.adamw_step(small_gpt().parameters["transformer.ln_f.bias"], np.ones(16, np.float32),
                           cephalo.AdamWState())
    with pytest.raises(ValueError, match="gradient"):
        cephalo.adamw_step(p, g[:2], state)
    with pytest.raises(TypeError, match="float32"):
        cephalo.adamw_step(p, g.astype(np.float32), state)


def test_sgd_with_and_without_momentum():
    p, g, state = np.zeros(3), np.ones(3), cephalo.SgdState()
    cephalo.sgd_step(p, g, learning_rate=0.5)
    assert p.tolist() == [-0.5] * 3
    for _ in range(2):
        cephalo.sgd_step(p, g, state, learning_rate=1.0, momentum=0.5)
    assert p.tolist() == [-3.0] * 3 and state.direction.tolist() == [1.5] * 3
    with pytest.raises(ValueError, match="momentum needs a state"):
        cephalo.sgd_step(p, g, momentum=0.5)


def test_gradients_are_clipped_together():
    a, b = np.full(2, 3.0), np.full((2, 1), 4.0, np.float32)
    norm = cephalo.clip_gradient_norm([a, b], 1.0)
    assert abs(norm - np.sqrt(50)) <= 1e-6 and abs(a[0] - 3 / np.sqrt(50)) <= 1e-6
    assert cephalo.clip_gradient_norm({"a": a, "b": b}, 2.0) == pytest.approx(1.0, abs=1e-5)
    _, gradients = small_gpt().train_pass(DATA[:8], DATA[1:9])
    assert cephalo.clip_gradient_norm(gradients, 1e-3) > 1e-3
    assert cephalo.clip_gradient_norm(gradients, 1.0) <= 1e-3
    with pytest.raises(ValueError, match="a gradient is read-only"):
        cephalo.clip_gradient_norm(small_gpt().parameters, 1.0)


def test_the_learning_rate_rises_and_falls():
    s = cephalo.Schedule(learning_rate=1.0, warmup=10, steps=110, min_lr_share=0.1)
    rates = [cephalo.learning_rate_at(s, step) for step in (0, 4, 9, 60, 110, 999)]
    assert rates == pytest.approx([0.1, 0.5, 1.0, 0.55, 0.1, 0.1], abs=1e-2)
    assert "warmup=10" in repr(s)


def test_a_step_is_what_its_parts_make_by_hand():
    gpt, other = small_gpt(), small_gpt()
    record = trainer(gpt, schedule=cephalo.Schedule(1e-2, 1, 10), clip=0.5).step()
    rows = np.stack([windows().row(number) for number in range(4)])
    loss, gradients = other.train_pass(rows[:, :-1], rows[:, 1:])
    norm = cephalo.clip_gradient_norm(gradients, 0.5)
    assert record.step == 1 and record.loss == pytest.approx(loss, abs=1e-6)
    assert record.gradient_norm == pytest.approx(norm, rel=1e-5) and not record.skipped
    kinds = other.parameter_kinds
    other.update_all(lambda name, p: cephalo.adamw_step(
        p, gradients[name], cephalo.AdamWState(), learning_rate=record.learning_rate, beta2=0.95,
        weight_decay=0.1 if kinds[name] == "matrix" else 0.0))
    assert all(np.abs(gpt.parameters[n] - other.parameters[n]).max() <= 1e-6 for n in gpt.parameters)


def test_rows_may_come_from_a_function():
    one, other = small_gpt(), small_gpt()
    trainer(one).step()
    rows = windows()
    cephalo.Trainer(other, rows.row, batch=4, context_length=8, schedule=FEW).step()
    assert same(one, other)
    with pytest.raises(TypeError, match="Trainer: rows must be Windows, or a function"):
        cephalo.Trainer(other, 3)
    short = cephalo.Trainer(other, lambda number: [1, 2], context_length=8)
    with pytest.raises(ValueError, match="row 0 has 2 ids, 9 are needed"):
        short.step()
    asking = cephalo.Trainer(other, lambda number: other([1]), context_length=8)
    with pytest.raises(ValueError, match="Gpt: it is being changed"):
        asking.step()


def test_a_step_without_all_its_rows_was_not_taken():
    gpt, rows, broken = small_gpt(), windows(), [True]

    def source(number):
        if number == 6 and broken[0]:
            raise RuntimeError("no row 6")
        return rows.row(number)

    accumulating = cephalo.Trainer(gpt, source, batch=4, context_length=8, accumulate=2, schedule=FEW)
    with pytest.raises(RuntimeError, match="no row 6"):
        accumulating.step()
    broken[0] = False
    accumulating.step()
    other = small_gpt()
    trainer(other, accumulate=2).step()
    assert same(gpt, other) and accumulating.steps_done == 1


def test_a_run_tells_what_it_does(tmp_path):
    gpt, told = small_gpt(), []
    t = trainer(gpt)
    assert t.run(folder=tmp_path / "run", save_every=4, validation=windows(seed=9), validation_rows=8,
                 validate_every=3, on_step=lambda r: told.append(("step", r.step)),
                 on_validation=lambda r: told.append(("validation", r.step)),
                 on_saved=lambda step: told.append(("saved", step))) is True
    assert told == [("saved", 0), ("step", 1), ("step", 2), ("step", 3), ("validation", 3), ("step", 4),
                    ("saved", 4), ("step", 5), ("step", 6), ("validation", 6), ("saved", 6)]
    history = t.history
    assert [r.step for r in history.steps] == [1, 2, 3, 4, 5, 6] and t.steps_done == 6
    assert history.validation[-1].loss == pytest.approx(t.validation_loss(windows(seed=9), 8))
    assert history.csv().splitlines()[0].startswith("step,loss") and "<svg" in history.svg("run")
    assert t.model is gpt and t.options["batch"] == 4
    assert (tmp_path / "run" / "checkpoints" / "latest").exists()


def test_functions_of_a_run_may_use_model_and_trainer(tmp_path):
    gpt = small_gpt()
    t, texts = trainer(gpt), []

    def on_step(record):
        texts.append(gpt.generate([1], 3, seed=record.step).ids)
        t.save(tmp_path / f"{t.steps_done}.safetensors")
        assert t.validation_loss(windows(), 4) > 0

    assert t.run(on_step=on_step) and len(texts) == 6


def test_what_a_function_of_a_run_raises_reaches_the_caller():
    gpt = small_gpt()
    t = trainer(gpt)

    def complain(record):
        raise RuntimeError(f"step {record.step}")

    with pytest.raises(RuntimeError, match="step 1"):
        t.run(on_step=complain)
    assert t.steps_done == 1 and t.run(stop=lambda: t.steps_done == 3) is False
    assert t.steps_done == 3 and t.run() is True and t.steps_done == 6
    with pytest.raises(TypeError, match="Trainer.run: stop must be a function or None"):
        t.run(stop=True)
    with pytest.raises(TypeError, match="folder must be a path"):
        t.run(folder=3)


def test_a_stop_that_is_neither_true_nor_false_is_an_error():
    t = trainer()
    with pytest.raises(ValueError, match="truth value of an array"):
        t.run(stop=lambda: np.array([1, 2]))
    assert t.run(stop=lambda: np.array([True])) is False


@pytest.mark.parametrize("use", ["update", "step"])
def test_rows_of_a_validation_may_not_change_the_model(use):
    t = trainer()
    parameter = list(t.model.parameters)[-1]
    uses = {"update": lambda: t.model.update(parameter, np.array(t.model.parameters[parameter])),
            "step": t.step}
    said = []

    def rows(number):
        t.model.loss([1, 2], [2, 3])  # to read it is fine
        try:
            uses[use]()
        except ValueError as error:
            said.append(str(error))
        return np.arange(9)

    judging = threading.Thread(target=t.validation_loss, args=(rows, 2), daemon=True)
    judging.start()
    judging.join(60)
    assert not judging.is_alive(), "validation_loss waits for itself"
    expected = {"update": "Gpt: it is being read and waits for the function that now changes it; change "
                          "it after that call",
                "step": "Trainer: it is being changed and waits for the function that now uses it; use "
                        "it after that call"}
    assert said == [expected[use]] * 2


def test_a_checkpoint_goes_on_as_if_nothing_had_been(tmp_path):
    whole, broken, resumed = small_gpt(dropout=0.1), small_gpt(dropout=0.1), small_gpt(dropout=0.1)
    trainer(whole).run()
    first = trainer(broken)
    first.set_notes({"corpus": "numbers"})
    first.run(stop=lambda: first.steps_done == 3)
    first.save(tmp_path / "half.safetensors")
    summary = cephalo.checkpoint_summary(tmp_path / "half.safetensors")
    assert summary["step"] == 3 and summary["notes"] == {"corpus": "numbers"}
    assert trainer(resumed).load(tmp_path / "half.safetensors").run() and same(whole, resumed)
    with pytest.raises(ValueError, match="half.safetensors"):
        trainer(small_gpt(d_model=8)).load(tmp_path / "half.safetensors")
    data = bytearray((tmp_path / "half.safetensors").read_bytes())
    data[-100] ^= 1
    (tmp_path / "flipped.safetensors").write_bytes(data)
    with pytest.raises(ValueError, match="checksum"):
        trainer(resumed).load(tmp_path / "flipped.safetensors")


@pytest.mark.parametrize("inside", [True, False])
def test_ctrl_c_saves_and_is_raised(tmp_path, inside):
    """Inside of a function of the caller's, or while the engine computes."""
    gpt = small_gpt()
    t = trainer(gpt, schedule=cephalo.Schedule(1e-3, 1, 1_000_000))
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    if not inside:
        signal.setitimer(signal.ITIMER_REAL, 0.3)

    def on_step(record):
        if inside and record.step == 5:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        t.run(folder=tmp_path / "run", on_step=on_step)
    folder = cephalo.RunFolder(tmp_path / "run")
    assert folder.steps[-1] == t.steps_done >= 1 and (not inside or t.steps_done == 5)
    other = small_gpt()
    resumed = trainer(other).load(folder.checkpoint(folder.steps[-1]))
    assert resumed.steps_done == t.steps_done and same(gpt, other)


def test_a_folder_belongs_to_one_run(tmp_path):
    folder = cephalo.RunFolder(tmp_path / "run", keep=3)
    assert trainer().run(folder=folder, save_every=1) and folder.steps == [4, 5, 6]
    assert folder.repairs == [] and folder.checkpoint(6).endswith("step-00000006.safetensors")
    with pytest.raises((ValueError, OSError), match="run"):
        cephalo.RunFolder(tmp_path / "run")


@pytest.mark.parametrize("options, text", [
    (dict(batch=0), r"Trainer: batch \(0\)"),
    (dict(context_length=17), r"Trainer: context_length \(17\)"),
    (dict(clip=-1.0), r"Trainer: clip \(-1\)"),
    (dict(schedule=cephalo.Schedule(learning_rate=-1.0)), "learning_rate"),
])
def test_trainers_that_cannot_be_are_named(options, text):
    with pytest.raises(ValueError, match=text):
        cephalo.Trainer(small_gpt(), windows(), **options)
