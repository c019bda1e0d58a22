"""cephalo.effects, ablate, lens and patch: what they find, and that they show it."""

import json

import pages
import pytest

import cephalo

pytestmark = pytest.mark.skipif(not cephalo.has_builtin_model(), reason="built without the built-in model")

TEXT = "Once upon a time there were four little Rabbits, and their names were Flopsy, Mopsy, Cotton-tail"


def shows_itself(report, schema):
    assert report["schema"] == schema and json.loads(report.json())["schema"] == schema
    assert "svg" in pages.self_contained(report._repr_html_()).tags and len(repr(report).splitlines()) > 5
    assert report.picture().png().startswith(b"\x89PNG")


def test_effects_have_a_number_for_each_head():
    seen = []
    report = cephalo.effects(TEXT, progress=lambda done, all: seen.append((done, all)))
    shows_itself(report, "cephalo.effects/1")
    change = report["heads"]["logit_change"]
    assert len(change) == 4 and all(len(layer) == 8 for layer in change)
    assert seen[-1] == (32, 32)
    strongest = max(abs(number) for layer in change for number in layer)
    first = report["heads"]["strongest"][0]
    assert abs(first["logit_change"]) == pytest.approx(strongest)
    # The same by the plain call.
    model = cephalo.builtin_model()
    kept = cephalo.KeptPass(model, TEXT)
    token = report["predicted"]["id"]
    before, = kept.measure(logits=[token]).logits
    after, = kept.measure("L2H3", logits=[token]).logits
    assert change[2][3] == pytest.approx(after - before, abs=1e-5)  # one row of attention rounds as many do, almost


def test_an_ablation_shows_both_sides():
    report = cephalo.ablate(TEXT, "L3H2,L2H6", kind="mean")
    shows_itself(report, "cephalo.effects/1")
    assert report["ablation"]["divergence"] > 0


def test_the_lens_has_a_row_for_each_layer():
    report = cephalo.lens(TEXT, norm="frozen")
    shows_itself(report, "cephalo.lens/1")
    with pytest.raises(ValueError, match="fresh, frozen, none"):
        cephalo.lens(TEXT, norm="warm")


def test_patching_needs_texts_of_one_length_and_answers_of_one_token():
    clean = "Peter ran to the gate and Peter"
    corrupt = "The ran to the gate and Peter"
    report = cephalo.patch(clean, corrupt, " Rabbit", " was")
    shows_itself(report, "cephalo.patch/1")
    with pytest.raises(ValueError, match="token"):
        cephalo.patch(clean, "Mary ran", " Rabbit", " was")
    with pytest.raises(ValueError, match="token"):
        cephalo.patch(clean, corrupt, " Rabbit was here", " was")


def test_a_scaled_head_is_not_called_a_removed_one():
    report = cephalo.effects(TEXT, kind="scale", factor=2.0)
    assert " times 2" in report["heads"]["strongest"][0]["words"]
    assert "raises" not in repr(report)
    assert not cephalo.effects(TEXT, kind="scale", factor=1.0)["heads"]["strongest"]
    with pytest.raises(ValueError, match="scale needs its factor"):
        cephalo.effects(TEXT, kind="scale")


def test_edges_of_a_token_may_be_counted_from_the_end():
    short = "Peter ran to the gate"
    report = cephalo.effects(short, edges=-1)
    assert report["edges"]["query"] == len(report["tokens"]) - 1
    for edges in (-100, 100):
        with pytest.raises(ValueError, match="is not in"):
            cephalo.effects(short, edges=edges)
    with pytest.raises(ValueError, match="not both"):
        cephalo.effects(short, edges=2, pairs=True)
    cut, hidden = (cephalo.ablate(short, "L3H0:5>1", kind=kind)["ablation"]["logit_change"] for kind in ("cut", "hide"))
    assert cut != hidden


def test_the_mean_of_a_reference_is_that_of_a_kept_pass():
    model = cephalo.builtin_model()
    other = "The cat sat on the mat."
    report = cephalo.effects(TEXT, model, kind="reference-mean", reference=other)
    kept = cephalo.KeptPass(model, TEXT)
    mean = cephalo.reference_mean([cephalo.KeptPass(model, other)])
    token = report["predicted"]["id"]
    before, = kept.measure(logits=[token]).logits
    after, = kept.measure("L3H0", "reference-mean", logits=[token], reference=mean).logits
    assert report["heads"]["logit_change"][3][0] == pytest.approx(after - before, abs=1e-5)


def test_a_lens_shows_at_least_one_token():
    with pytest.raises(ValueError, match="top must be at least 1"):
        cephalo.lens(TEXT, top=0)
