"""Every activation by its TransformerLens name, and every replacement, with the same parameters."""

import functools
import re

import numpy as np
import pytest
import torch
from lens_models import MODELS, difference, lens_model, names_of_page, some_ids

TOLERANCE = 1e-4


@functools.cache
def pair(kind):
    gpt = MODELS[kind]()
    return gpt, lens_model(gpt, use_attn_result=True)


@functools.cache
def cached(kind):
    """Logits and every activation of a batch of two."""
    gpt, lens = pair(kind)
    with torch.inference_mode():
        logits, cache = lens.run_with_cache(torch.tensor(some_ids(gpt, batch=2)))
    return logits, dict(cache)


def names(kind):
    return list(cached(kind)[1])


@pytest.mark.parametrize("kind", MODELS)
def test_the_page_lists_what_transformer_lens_has(kind):
    theirs = {re.sub(r"^blocks\.\d+\.", "blocks.L.", name) for name in names(kind)}
    absent = {"hook_pos_embed"} if pair(kind)[0].options["positions"] == "rotary" else {
        "blocks.L.attn.hook_rot_q", "blocks.L.attn.hook_rot_k"}
    assert theirs == names_of_page() - absent


@pytest.mark.parametrize("kind", MODELS)
def test_activations_are_equal_under_every_name(kind):
    gpt, _ = pair(kind)
    logits, cache = cached(kind)
    run = gpt.run(some_ids(gpt, batch=2), keep=list(cache))
    assert difference(run.logits, logits) < TOLERANCE
    for name, value in cache.items():
        assert difference(run[name], value) < TOLERANCE, name


def changed(value):
    """Moves every number, unevenly: a norm forgets what all of a row shares. Weights of hidden keys too."""
    value = value * 1.25 + 0.1
    value[..., ::3] *= 0.5
    return value


@pytest.mark.parametrize("kind", MODELS)
def test_replacing_under_every_name_does_the_same(kind):
    gpt, lens = pair(kind)
    ids = some_ids(gpt, batch=2)
    before = cached(kind)[0]
    for name in names(kind):
        if name.startswith("blocks.0.") or name.startswith("blocks.2."):
            continue  # layers are alike
        run = gpt.run(ids, replace={name: changed})
        with torch.inference_mode():
            logits = lens.run_with_hooks(torch.tensor(ids), fwd_hooks=[(name, lambda v, hook: changed(v))])
        assert difference(run.logits, logits) < TOLERANCE, name
        assert difference(logits, before) > 10 * TOLERANCE, name


@pytest.mark.parametrize("kind", MODELS)
def test_each_head_zeroed(kind):
    gpt, lens = pair(kind)
    ids = some_ids(gpt)
    for layer in range(gpt.options["num_layers"]):
        for head in range(gpt.options["num_heads"]):
            def zero(z, hook=None, head=head):
                z[:, :, head] = 0.0

            name = f"blocks.{layer}.attn.hook_z"
            run = gpt.run(ids, replace={name: zero})
            with torch.inference_mode():
                logits = lens.run_with_hooks(torch.tensor(ids), fwd_hooks=[(name, zero)])
            assert difference(run.logits, logits) < TOLERANCE, (layer, head)


@pytest.mark.parametrize("kind", MODELS)
def test_the_stream_of_another_text_at_one_position(kind):
    gpt, lens = pair(kind)
    clean = some_ids(gpt)
    corrupt = np.roll(clean, 5, axis=1)
    name = "blocks.1.hook_resid_pre"
    with torch.inference_mode():
        _, cache = lens.run_with_cache(torch.tensor(clean), names_filter=name)
    kept = gpt.run(clean, keep=[name])
    for position in (0, clean.shape[1] // 2, clean.shape[1] - 1):
        def patch(value, hook=None, source=None, position=position):
            value[:, position] = source[:, position]

        run = gpt.run(corrupt, replace={name: functools.partial(patch, source=kept[name])})
        with torch.inference_mode():
            logits = lens.run_with_hooks(torch.tensor(corrupt),
                                         fwd_hooks=[(name, functools.partial(patch, source=cache[name]))])
        assert difference(run.logits, logits) < TOLERANCE, position


@pytest.mark.parametrize("kind", MODELS)
def test_a_key_hidden_by_its_score(kind):
    gpt, lens = pair(kind)
    ids = some_ids(gpt)
    name = "blocks.1.attn.hook_attn_scores"

    def hide(scores, hook=None):
        scores[:, 1, 1:, 0] = -float("inf")

    run = gpt.run(ids, replace={name: hide})
    with torch.inference_mode():
        logits = lens.run_with_hooks(torch.tensor(ids), fwd_hooks=[(name, hide)])
    assert difference(run.logits, logits) < TOLERANCE


def test_arrays_of_pytorch_come_back_as_such():
    gpt, _ = pair("gpt2")
    ids = torch.tensor(some_ids(gpt))
    run = gpt.run(ids, keep=["blocks.0.attn.hook_z"],
                  replace={"blocks.0.attn.hook_z": lambda z: torch.zeros_like(z)})
    assert isinstance(run.logits, torch.Tensor) and run["blocks.0.attn.hook_z"].shape == (1, 40, 6, 16)
    assert not run["blocks.0.attn.hook_z"].any()
