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
