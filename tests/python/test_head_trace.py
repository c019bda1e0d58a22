"""Gpt.trace: one head by hand, its numbers, its page, and the schema of its JSON."""

import copy
import hashlib
import json
import pathlib
import subprocess
import sys

import cephalo
import jsonschema
import numpy as np
import pages
import pytest

pytestmark = pytest.mark.skipif(not cephalo.has_builtin_model(), reason="built without a model")

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/schema/trace.json").read_text(encoding="utf-8"))
TEXT = "The cat sat on the mat. The cat"


@pytest.fixture(scope="module")
def model():
    return cephalo.builtin_model()


@pytest.fixture(scope="module")
def trace(model):
    return model.trace(TEXT, layer=3, head=1)


def valid(text):
    document = json.loads(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return document


def printed(*arguments):
    done = subprocess.run([sys.executable, "-m", "cephalo", "trace", *arguments, "--json"], capture_output=True,
                          text=True, check=True, encoding="utf-8")
    return done.stdout


def test_the_table_by_hand_is_numpys(trace):
    products = trace.k @ trace.q
    assert np.allclose([key.product for key in trace.keys], products, rtol=1e-12)
    scores = products / np.sqrt(len(trace.q))
    powers = np.exp(scores - scores.max())
    weights = powers / powers.sum()
    assert np.allclose([key.score for key in trace.keys], scores, rtol=1e-12)
    assert np.allclose([key.weight for key in trace.keys], weights, rtol=1e-10)
    assert np.allclose(trace.context, weights @ trace.v, rtol=1e-10)


def test_it_is_what_the_recording_has(model, trace):
    recording = cephalo.Recording(model, TEXT)
    assert trace.token == recording.tokens - 1
    weights = [key.weight for key in trace.keys]
    assert np.allclose(weights, recording.weights(3, heads=[1], rows=[trace.token])[0, 0], atol=1e-5)
    adds = np.array(weights) * recording.value_norms(3)[1]
    assert np.allclose([key.adds for key in trace.keys], adds, rtol=1e-4)


def test_the_heads_shares_are_of_their_norms(trace):
    assert len(trace.shares) == len(trace.head_norms) == 8
    assert np.allclose(trace.shares, np.array(trace.head_norms) / sum(trace.head_norms))
    assert trace.added_norm < sum(trace.head_norms)


def test_a_token_by_name_or_index(model, trace):
    assert model.trace(TEXT, token="sat").token == 3
    assert model.trace(TEXT, token=-1).token == trace.token
    with pytest.raises(ValueError, match="trace: no token is 'dog'"):
        model.trace(TEXT, token="dog")
    with pytest.raises(IndexError, match="trace: there is no token 10"):
        model.trace(TEXT, token=10)


def test_texts_run_as_a_padded_batch(model):
    texts = ["A dog", TEXT, b"Once upon a time"]
    among = model.trace(texts, layer=2, head=3, batch=2)
    alone = model.trace(texts[2], layer=2, head=3)
    assert among.text == "Once upon a time"
    assert [tokens for _, tokens in among.batch] == [3, 10, 5]
    assert np.allclose([key.weight for key in among.keys], [key.weight for key in alone.keys], atol=1e-5)
    assert "5 tokens + 5 padding" in " ".join(repr(among).split())
    with pytest.raises(IndexError, match="there is no text 3 of 3"):
        model.trace(texts, batch=3)


def test_what_there_is_not_is_refused(model):
    with pytest.raises(ValueError, match="there is no layer 4 head 0"):
        model.trace(TEXT, layer=4)
    with pytest.raises(ValueError, match="301 tokens are more than"):
        model.trace(" the" * 300)
    with pytest.raises(ValueError, match="tokenizer"):
        cephalo.Gpt(300, 8, 8, 2, 1, seed=1).trace("a")


def test_it_shows_itself_as_text(trace):
    assert "the strongest key by hand" in repr(trace)
    assert "SOFTMAX" not in repr(trace) and "SOFTMAX" in trace.show(explain=True)
    assert "7 keys are left out" in trace.show(top=2)


def test_it_shows_itself_as_a_page(model, trace, tmp_path):
    page = pages.self_contained(trace._repr_html_())
    said = " ".join(page.texts)
    for key in trace.keys:
        assert f"{key.product:.3f}" in said and f"{key.score:.3f}" in said
    assert "sum (of v: weight × v)" in said and "rotary" in said
    assert page.tags.count("tr") == 1 + 10 + 1 + 4 + 8
    trace.save(tmp_path / "trace.html")
    assert "layer 3 head 1" in (tmp_path / "trace.html").read_text(encoding="utf-8")
    long = pages.self_contained(model.trace(["<b> & the" * 30, "a"], layer=1)._repr_html_())
    assert "more keys are left out" in " ".join(long.texts)


def test_the_hash_is_of_the_parameters(model, trace):
    digest = hashlib.sha256()
    for value in model.parameters.values():
        digest.update(np.ascontiguousarray(value).tobytes())
    assert json.loads(trace.json())["model"]["sha256"] == digest.hexdigest()


def test_a_model_that_changed_since_is_not_named(model):
    changed = cephalo.builtin_model()
    trace = changed.trace("a")
    name = next(iter(changed.parameters))
    changed.update(name, np.zeros_like(changed.parameters[name]))
    with pytest.raises(ValueError, match="the model has changed since"):
        trace.json()


def test_python_and_program_write_the_same_json_of_the_schema(trace):
    document = valid(trace.json())
    assert document == valid(printed(TEXT, "--layer", "3", "--head", "1"))
    assert document["model"]["num_heads"] == 8 and document["began"] is True


@pytest.mark.parametrize("arguments", [
    (), ("--rung", "1"), ("--rung", "2", "--d-in", "3", "--d-out", "2", "--parameters"), ("--rung", "8"),
    ("--train", "--dropout", "0.5"), (TEXT, "--token", "0", "--no-begin"), ("a\nb c\u00e9", "--batch", "1")])
def test_every_form_of_json_is_of_the_schema(arguments):
    valid(printed(*arguments))


@pytest.mark.parametrize("untrained", [False, True])
def test_the_schema_misses_every_key_and_knows_no_other(trace, untrained):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = json.loads(printed("--d-in", "4", "--d-out", "4", "--num-heads", "2") if untrained
                          else trace.json())
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for key in document:
        less = copy.deepcopy(document)
        del less[key]
        assert not validator.is_valid(less), key
    assert not validator.is_valid(document | {"other": 1})
    assert not validator.is_valid(document | {"schema": "cephalo.trace/2"})
    assert not validator.is_valid(document | {"trained": untrained})
