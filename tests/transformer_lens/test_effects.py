"""Experiments against hooks of TransformerLens that do the same: every kind of change, and patching."""

import functools
import itertools

import numpy as np
import pytest
import torch
from lens_models import MODELS, lens_model, some_ids

import cephalo

TOLERANCE = 1e-4
A, B = 17, 42  # tokens whose logits are read


class Side:
    """A model on both sides, with a text and another one of its length."""

    def __init__(self, kind):
        self.gpt = MODELS[kind]()
        self.lens = lens_model(self.gpt)
        self.ids = some_ids(self.gpt)[:, :40]
        self.other = np.roll(self.ids, 7, axis=1)
        self.kept = cephalo.KeptPass(self.gpt, self.ids[0])
        self.other_kept = cephalo.KeptPass(self.gpt, self.other[0])
        self.layers, self.heads = self.gpt.options["num_layers"], self.gpt.options["num_heads"]
        self.logits, self.cache = self.cached(self.ids)
        self.other_logits, self.other_cache = self.cached(self.other)

    def cached(self, ids):
        with torch.inference_mode():
            logits, cache = self.lens.run_with_cache(torch.tensor(ids))
        return logits[0].double(), cache

    def hooked(self, *hooks):
        """name, function(value) -> logits: [tokens, vocab_size]"""
        hooks = [(name, lambda value, hook, change=change: change(value)) for name, change in hooks]
        with torch.inference_mode():
            return self.lens.run_with_hooks(torch.tensor(self.ids), fwd_hooks=hooks)[0].double()

    def measured(self, kind, changes, factor=1.0):
        """One row of numbers for each experiment."""
        found = self.kept.measure_each(changes, kind, factor, logits=[A, B], rank=A, divergence=True, losses=True,
                                       patch_from=self.other_kept,
                                       reference=cephalo.reference_mean([self.other_kept]))
        return [np.array([*one.logits, one.rank, one.divergence, *one.losses]) for one in found]

    def measures(self, logits):
        """The same numbers from TransformerLens's logits."""
        log_softmax, before = logits.log_softmax(-1), self.logits.log_softmax(-1)
        rank = (logits[-1] > logits[-1, A]).sum()
        divergence = (before[-1].exp() * (before[-1] - log_softmax[-1])).sum()
        losses = -log_softmax[:-1].gather(1, torch.tensor(self.ids[0, 1:, None]))[:, 0]
        return np.array([logits[-1, A], logits[-1, B], rank, divergence, *losses])


@functools.cache
def side(kind):
    return Side(kind)


def expect_equal(ours, theirs, what):
    """Logits and losses; ranks where no other token is as near as rounding."""
    np.testing.assert_allclose(np.delete(ours, 2), np.delete(theirs, 2), atol=TOLERANCE,
                               err_msg=str(what))
    assert abs(ours[2] - theirs[2]) <= 1, what


def z_name(layer):
    return f"blocks.{layer}.attn.hook_z"


def of_head(head, change):
    """z: [batch, tokens, heads, d_head]"""
    def changed(z):
        z[:, :, head] = change(z[:, :, head])

    return changed


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("change", ["zero", "mean", "reference-mean", "scale", "patch"])
def test_each_head_changed(kind, change):
    at = side(kind)
    places = list(itertools.product(range(at.layers), range(at.heads)))
    ours = at.measured(change, [f"L{layer}H{head}" for layer, head in places], factor=0.3)
    for (layer, head), found in zip(places, ours):
        other = at.other_cache[z_name(layer)][:, :, head]
        changes = {"zero": lambda z: 0 * z,
                   "mean": lambda z: z.mean(1, keepdim=True),
                   "reference-mean": lambda z: other.mean(1, keepdim=True),
                   "scale": lambda z: 0.3 * z,
                   "patch": lambda z: other}
        theirs = at.hooked((z_name(layer), of_head(head, changes[change])))
        expect_equal(found, at.measures(theirs), (layer, head))


@pytest.mark.parametrize("kind", MODELS)
def test_heads_that_look_evenly_or_not_at_the_first_token(kind):
    at = side(kind)
    tokens = at.ids.shape[1]
    even = torch.tril(torch.ones(tokens, tokens)) / torch.arange(1, tokens + 1)[:, None]
    for layer, head in ((0, 1), (at.layers - 1, 0)):
        def evenly(pattern):
            pattern[:, head] = even

        def not_first(scores):
            scores[:, head, 1:, 0] = -float("inf")

        name = f"blocks.{layer}.attn.hook_"
        expect_equal(at.measured("uniform", [f"L{layer}H{head}"])[0],
                     at.measures(at.hooked((name + "pattern", evenly))), ("uniform", layer))
        expect_equal(at.measured("no-first", [f"L{layer}H{head}"])[0],
                     at.measures(at.hooked((name + "attn_scores", not_first))), ("no-first", layer))


@pytest.mark.parametrize("kind", MODELS)
def test_an_edge_hidden_and_cut(kind):
    at = side(kind)
    for layer, head, query, key in ((0, 2, 39, 3), (1, 0, 20, 20), (at.layers - 1, 1, 39, 38)):
        def hide(scores):
            scores[:, head, query, key] = -float("inf")

        def cut(pattern):
            pattern[:, head, query, key] = 0.0

        spelt = [f"L{layer}H{head}:{query}>{key}"]
        name = f"blocks.{layer}.attn.hook_"
        expect_equal(at.measured("hide", spelt)[0], at.measures(at.hooked((name + "attn_scores", hide))), spelt)
        expect_equal(at.measured("cut", spelt)[0], at.measures(at.hooked((name + "pattern", cut))), spelt)


def zero(value):
    return torch.zeros_like(value)


@pytest.mark.parametrize("kind", MODELS)
def test_parts_of_layers_removed(kind):
    at = side(kind)
    for layer in range(at.layers):
        attention, mlp = (f"blocks.{layer}.hook_attn_out", zero), (f"blocks.{layer}.hook_mlp_out", zero)
        ours = at.measured("zero", [f"L{layer}.attention", f"L{layer}.mlp", f"L{layer}"])
        for found, hooks in zip(ours, ([attention], [mlp], [attention, mlp])):
            expect_equal(found, at.measures(at.hooked(*hooks)), hooks)


@pytest.mark.parametrize("kind", MODELS)
def test_two_changes_at_once(kind):
    at = side(kind)
    expect_equal(at.measured("zero", ["L0H1,L1H2"])[0],
                 at.measures(at.hooked((z_name(0), of_head(1, zero)), (z_name(1), of_head(2, zero)))), kind)


@pytest.mark.parametrize("kind", MODELS)
def test_patching_brings_the_answer_back_as_much(kind):
    at = side(kind)
    tokens = at.ids.shape[1]
    gained = at.other_logits[-1] - at.logits[-1]
    answer, wrong = int(gained.argmax()), int(gained.argmin())

    def difference(logits):
        return float(logits[-1, answer] - logits[-1, wrong])

    clean, corrupt = difference(at.other_logits), difference(at.logits)

    def recovered(logits):
        return (difference(logits) - corrupt) / (clean - corrupt)

    found = cephalo.patch_each(at.other_kept, at.kept, answer, wrong)
    np.testing.assert_allclose([found.clean, found.corrupt], [clean, corrupt], atol=TOLERANCE)
    assert found.divided
    for layer in range(at.layers):
        for head in range(at.heads):
            other = at.other_cache[z_name(layer)][:, :, head]
            theirs = recovered(at.hooked((z_name(layer), of_head(head, lambda z: other))))
            assert abs(found.heads[layer, head] - theirs) < TOLERANCE, (layer, head)
        name = f"blocks.{layer}.hook_resid_pre"
        for position in (0, tokens // 2, tokens - 1):
            def patch(value):
                value[:, position] = at.other_cache[name][:, position]

            theirs = recovered(at.hooked((name, patch)))
            assert abs(found.positions[layer, position] - theirs) < TOLERANCE, (layer, position)
