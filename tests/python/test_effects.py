"""Experiments on a model: what changes when a part of it is changed."""

import numpy as np
import pytest

import cephalo
from test_gpt import ids, small_gpt, text_gpt

HEADS = [(layer, head) for layer in range(2) for head in range(2)]


def scattered():
    """A small model whose heads, norms and biases all matter."""
    gpt = small_gpt()
    rng = np.random.default_rng(3)
    for name, value in gpt.parameters.items():
        about = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
        gpt.update(name, (about + 0.3 * rng.standard_normal(value.shape)).astype(np.float32))
    return gpt


def out_weight(layer):
    return f"transformer.h.{layer}.attn.c_proj.weight"


def test_a_pass_without_changes_has_the_logits_of_the_model():
    gpt, tokens = scattered(), ids(9)
    kept = cephalo.KeptPass(gpt, tokens)
    assert kept.ids == tokens.tolist() and kept.tokens == 9 and kept.bytes > 0
    logits = gpt(tokens)
    found = kept.measure(logits=[3, 1], rank=3, losses=True, top=2, position=4)
    assert np.allclose(found.logits, logits[4, [3, 1]], atol=1e-5)
    order = np.argsort(-logits[4], kind="stable").tolist()
    assert found.rank == order.index(3)
    assert [token for token, _ in found.top] == order[:2]
    shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    assert np.allclose(found.losses, -shares[np.arange(8), tokens[1:]], atol=1e-5)
    assert kept.measure(logits=[0]).rank is None


def test_each_head_in_turn_has_the_bits_of_each_head_alone():
    gpt = scattered()
    kept = cephalo.KeptPass(gpt, ids(12))
    for kind in ("zero", "mean", "uniform", "no-first"):
        swept = kept.measure_each(cephalo.each_head(gpt, kind), logits=[5], losses=True)
        for (layer, head), one in zip(HEADS, swept, strict=True):
            alone = kept.measure(f"L{layer}H{head}", kind, logits=[5], losses=True)
            assert one.logits == alone.logits and one.losses == alone.losses


@pytest.mark.parametrize("place", HEADS)
def test_a_head_that_is_zero_is_a_head_that_is_not_projected(place):
    gpt, tokens = scattered(), ids(10)
    layer, head = place
    found = cephalo.KeptPass(gpt, tokens).measure(f"L{layer}H{head}", logits=list(range(6)))
    width = gpt.d_model // gpt.num_heads
    edited = gpt.parameters[out_weight(layer)].copy()
    edited[:, head * width:(head + 1) * width] = 0
    gpt.update(out_weight(layer), edited)
    assert np.allclose(found.logits, gpt(tokens)[-1, :6], atol=2e-5)


def test_a_sweep_stops_when_told_and_keeps_what_is_done():
    gpt = scattered()
    kept = cephalo.KeptPass(gpt, ids(6))
    seen = []

    def progress(done, all):
        seen.append((done, all))
        return done < 2

    found = kept.measure_each(cephalo.each_head(gpt), progress=progress, logits=[1], memory=1)
    assert seen[-1] == (len(found), 4) and 2 <= len(found) < 4


def test_parts_of_a_logit_add_up_to_it():
    gpt, tokens = scattered(), ids(11)
    kept = cephalo.KeptPass(gpt, tokens)
    parts = kept.attribute(7, position=-2)
    logit = gpt(tokens)[-2, 7]
    assert parts.logit == pytest.approx(logit, abs=1e-5)
    assert parts.sum == pytest.approx(parts.logit, abs=1e-5 * max(1, abs(logit)))
    by_source = kept.attribute_sources(1, 0, 7, position=-2)
    assert by_source.shape == (10,) and by_source.sum() == pytest.approx(parts.heads[1, 0], abs=1e-5)


def test_the_lens_ends_with_what_the_model_says():
    gpt, tokens = scattered(), ids(8)
    lens = cephalo.KeptPass(gpt, tokens).lens(top=3)
    logits = gpt(tokens).astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert len(lens.cells) == 3 and lens.positions == list(range(8))
    for i, cell in enumerate(lens.cells[-1]):
        assert cell.rank == 0 and cell.probability == pytest.approx(shares[i].max(), rel=1e-4)
        assert cell.top[0][0] == lens.tokens[i] == shares[i].argmax()


def test_patching_names_what_brings_the_answer_back():
    gpt = scattered()
    clean, corrupt = ids(9), ids(9)
    corrupt[2] = (corrupt[2] + 1) % 40
    found = cephalo.patch_each(cephalo.KeptPass(gpt, clean), cephalo.KeptPass(gpt, corrupt), 4, 5)
    assert found.heads.shape == (2, 2) and found.positions.shape == (2, 9)
    if found.divided:  # all that differs below layer 0 is token 2
        assert found.positions[0, 2] == pytest.approx(1, abs=1e-4)
        assert np.abs(found.positions[0, [0, 1, 3, 8]]).max() <= 1e-4
    with pytest.raises(ValueError, match="9.*8|8.*9"):
        cephalo.patch_each(cephalo.KeptPass(gpt, clean[:8]), cephalo.KeptPass(gpt, corrupt), 4, 5)


def test_composition_and_copying_are_shares():
    gpt = scattered()
    scores, baseline = cephalo.composition(gpt, "key")
    assert scores.shape == (2, 2, 2, 2) and 0 < baseline < 1
    assert np.isfinite(scores[0, :, 1, :]).all() and np.isnan(scores[1]).all()
    copying = cephalo.copying(gpt)
    assert copying.shape == (2, 2) and np.abs(copying).max() <= 1


def test_a_token_may_be_named_and_several_are_refused():
    gpt = text_gpt()
    kept = cephalo.KeptPass(gpt, "the cat", begin=False)
    piece = gpt.tokenizer.encode("the cat")[0]
    with pytest.raises(ValueError, match="must be one token; the tokenizer makes"):
        kept.measure(logits=["the cat sat on the mat"])
    assert kept.measure(logits=[piece]).logits


def test_errors_name_what_is_wrong():
    gpt = scattered()
    kept = cephalo.KeptPass(gpt, ids(5))
    with pytest.raises(ValueError, match="L7H0|layer 7"):
        kept.measure("L7H0", logits=[1])
    with pytest.raises(ValueError, match="position 5 of 5"):
        kept.measure(position=5)
    with pytest.raises(TypeError, match="a list of tokens"):
        kept.measure(logits=" mat")
    with pytest.raises(ValueError, match="must be finite"):
        kept.measure("L0H0", "scale", float("nan"), logits=[1])
    assert kept.measure(logits=[1]).divergence is None and kept.measure(divergence=True).divergence == 0
    with pytest.raises(TypeError, match="unknown argument loss"):
        kept.measure(loss=True)
    gpt.update("transformer.ln_f.bias", np.ones(16, np.float32))
    with pytest.raises(ValueError, match="changed since"):
        kept.measure(logits=[1])
