"""Which model for which text, and which rows: what `cephalo train` does where nothing else was said."""

import numpy as np
import pytest

import cephalo

BYTES = [bytes([b]) for b in range(256)]
WITH_END = cephalo.Bpe(BYTES + [b"<|endoftext|>"], [])
ALPHABET = np.arange(400) % 26 + ord("a")
MODEL = {"context_length": 8, "seed": 1}


def test_a_larger_text_has_a_larger_model_and_vocabulary():
    widths = [cephalo.choose_recipe(512, tokens).model["d_model"] for tokens in (10**3, 10**5, 2 * 10**6, 10**8)]
    assert widths == sorted(set(widths)) and len(widths) == 4
    assert cephalo.recipe_vocab_size(1_000) == 512 and cephalo.recipe_vocab_size(10**9) == 4096


def test_the_machine_is_taken_into_account_and_wishes_come_first():
    slow = cephalo.choose_recipe(4096, 10**8, flops=1e9)
    fast = cephalo.choose_recipe(4096, 10**8, flops=1e13)
    assert slow.model["d_model"] < fast.model["d_model"] and fast.seconds > 0
    assert cephalo.choose_recipe(4096, 10**8, model={"d_model": 768}, flops=1e9).model["d_model"] == 768
    little = cephalo.choose_recipe(4096, 10**8, memory=200 << 20).trainer
    assert little["accumulate"] > 1 and little["batch"] * little["accumulate"] == 32
    asked = cephalo.choose_recipe(4096, 10**8, trainer={"batch": 32}, memory=200 << 20).trainer
    assert asked["batch"] == 32 and asked["accumulate"] == 1
    few = cephalo.choose_recipe(512, 1_000, 1_000, steps=7, warmup=2, repeat_share=0.0,
                                model={"positions": "learned", "seed": 5}, trainer={"clip": 2})
    assert few.trainer["schedule"].steps == 7 and few.trainer["schedule"].warmup == 2
    assert few.model["positions"] == "learned" and few.model["seed"] == 5 and few.trainer["clip"] == 2.0
    assert not few.rows.repeat_sentences and few.rows.validation_rows == 999 // 64
    assert "d_model=64" in repr(few) and "steps=7" in repr(few)


def test_a_recipe_trains():
    recipe = cephalo.choose_recipe(257, 300, 100, steps=3, model={**MODEL, "d_model": 8, "num_layers": 1})
    gpt = cephalo.Gpt(**recipe.model)
    rows = cephalo.recipe_rows(ALPHABET, WITH_END, 300, recipe.model, recipe.rows)
    trainer = cephalo.Trainer(gpt, rows.training, **recipe.trainer)
    assert {**trainer.options, "schedule": None} == {**recipe.trainer, "schedule": None}
    assert trainer.run(validation=rows.validation, validation_rows=recipe.rows.validation_rows,
                       validate_every=recipe.validate_every)
    assert trainer.steps_done == 3 and trainer.history.validation[-1].loss > 0
    # The same as through a function of Python's.
    other = cephalo.Gpt(**recipe.model)
    cephalo.Trainer(other, lambda number: rows.training(number), **recipe.trainer).run()
    assert all(np.array_equal(gpt.parameters[name], other.parameters[name]) for name in gpt.parameters)


def test_every_row_begins_with_the_token_that_begins_a_text():
    training, validation = cephalo.recipe_rows(ALPHABET, WITH_END, 300, MODEL,
                                               cephalo.RowRecipe(validation_rows=4))
    for rows in (training, validation):
        assert rows.context_length == 8
        for number in range(4):
            row = rows(number)
            assert row.dtype == np.int64 and row.shape == (9,) and row[0] == 256
            assert ((row[2:] - row[1:-1]) % 26 == 1).all()  # the alphabet goes on: no token is lost
    plain = cephalo.recipe_rows(ALPHABET, cephalo.Bpe(BYTES, []), 300, MODEL, cephalo.RowRecipe())
    assert plain.validation is None and plain.training(0)[0] < 256


@pytest.mark.parametrize("call, kind, text", [
    (lambda: cephalo.choose_recipe(512, -1), ValueError, r"training_tokens \(-1\)"),
    (lambda: cephalo.choose_recipe(0, 1), ValueError, r"vocab_size \(0\) must be > 0"),
    (lambda: cephalo.choose_recipe(512, 1, flops=float("nan")), ValueError, r"flops \(nan\)"),
    (lambda: cephalo.choose_recipe(512, 1, model={"width": 1}), TypeError, "a Gpt has no option width"),
    (lambda: cephalo.choose_recipe(512, 1, model={"d_model": "x"}), TypeError, "d_model must be int"),
    (lambda: cephalo.choose_recipe(512, 1, trainer={"rate": 1}), TypeError, "a Trainer has no option rate"),
    (lambda: cephalo.choose_recipe(512, 1, trainer={"clip": "x"}), TypeError, "clip cannot be a str"),
    (lambda: cephalo.choose_recipe(512, 1, trainer={"batch": 0}), ValueError, r"batch \(0\)"),
    (lambda: cephalo.choose_recipe(512, 1, trainer={"batch": 1 << 62}), ValueError, "size overflows"),
    (lambda: cephalo.recipe_rows(ALPHABET, WITH_END, 8, MODEL, cephalo.RowRecipe()), ValueError,
     "the text has 8 tokens for training, a row needs 9"),
    (lambda: cephalo.recipe_rows(ALPHABET, WITH_END, 300, {"context_length": 8}, cephalo.RowRecipe()),
     ValueError, "the model has no seed"),
    (lambda: cephalo.recipe_rows([300], WITH_END, 300, MODEL, cephalo.RowRecipe()), ValueError, "300"),
    (lambda: cephalo.recipe_rows(ALPHABET, WITH_END, 300, MODEL, cephalo.RowRecipe()).training(-1),
     ValueError, "row -1 is negative"),
])
def test_what_cannot_be_is_refused_by_name(call, kind, text):
    with pytest.raises(kind, match=text):
        call()
