"""Attribution, lens, composition and copying against TransformerLens, norms folded and writing centred there."""

import functools

import numpy as np
import pytest
import torch
from lens_models import MODELS, config, difference, lens_state, some_ids
from transformer_lens import HookedTransformer

import cephalo

TOLERANCE = 1e-4
TOKEN = 17


@functools.cache
def pair(kind):
    """A model, and it as fold_ln and center_writing_weights leave it in TransformerLens."""
    gpt = MODELS[kind]()
    lens = HookedTransformer(config(gpt, use_attn_result=True))
    lens.load_and_process_state_dict({**lens.state_dict(), **lens_state(gpt)}, fold_ln=True,
                                     center_writing_weights=True, center_unembed=False,
                                     fold_value_biases=False)
    return gpt, lens.eval()


@functools.cache
def passes(kind):
    gpt, lens = pair(kind)
    ids = some_ids(gpt)
    with torch.inference_mode():
        logits, cache = lens.run_with_cache(torch.tensor(ids))
    return cephalo.KeptPass(gpt, ids[0]), logits[0], cache


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("position", [-1, 7])
def test_parts_of_a_logit(kind, position):
    gpt, lens = pair(kind)
    kept, logits, cache = passes(kind)
    with torch.inference_mode():
        parts, labels = cache.get_full_resid_decomposition(
            expand_neurons=False, apply_ln=False, pos_slice=position, return_labels=True)
        shares = cache.logit_attrs(parts, tokens=TOKEN, pos_slice=position, has_batch_dim=True)[:, 0]
    theirs = dict(zip(labels, shares.tolist(), strict=True))
    ours = kept.attribute(TOKEN, position)
    assert difference(ours.logit, logits[position, TOKEN]) < TOLERANCE
    assert difference(ours.token_embedding, theirs.pop("embed")) < TOLERANCE
    assert difference(ours.position_embedding, theirs.pop("pos_embed", 0.0)) < TOLERANCE
    assert difference(ours.bias, lens.unembed.b_U[TOKEN].item()) < TOLERANCE
    assert difference(ours.out_bias.sum(), theirs.pop("bias")) < TOLERANCE
    for layer in range(gpt.num_layers):
        assert difference(ours.mlp[layer], theirs.pop(f"{layer}_mlp_out")) < TOLERANCE, layer
        for head in range(gpt.num_heads):
            assert difference(ours.heads[layer, head], theirs.pop(f"L{layer}H{head}")) < TOLERANCE
    assert not theirs


@pytest.mark.parametrize("kind", MODELS)
def test_sources_of_a_head(kind):
    gpt, lens = pair(kind)
    kept, _, cache = passes(kind)
    layer, head, position = 1, gpt.num_heads - 1, 20
    with torch.inference_mode():
        weights = cache[f"blocks.{layer}.attn.hook_pattern"][0, head, position, :position + 1]
        values = cache[f"blocks.{layer}.attn.hook_v"][0, :position + 1]  # heads may share them
        adds = weights[:, None] * (values[:, -1] @ lens.W_O[layer, head])
        scaled = (adds - adds.mean(-1, keepdim=True)) / cache["ln_final.hook_scale"][0, position]
        theirs = scaled @ lens.W_U[:, TOKEN]
    assert difference(kept.attribute_sources(layer, head, TOKEN, position), theirs) < TOLERANCE


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("norm", ["frozen", "fresh"])
def test_what_the_lens_would_say(kind, norm):
    _, lens = pair(kind)
    kept, _, cache = passes(kind)
    with torch.inference_mode():
        rows = cache.accumulated_resid()
        rows = cache.apply_ln_to_stack(rows) if norm == "frozen" else lens.ln_final(rows)
        shares = (rows[:, 0] @ lens.W_U + lens.unembed.b_U).softmax(-1)
    found = kept.lens(norm=norm, token=TOKEN, top=1).cells
    assert difference([[cell.probability for cell in row] for row in found], shares[..., TOKEN]) < TOLERANCE
    likeliest = shares.max(-1).values
    assert difference([[cell.top[0][1] for cell in row] for row in found], likeliest) < TOLERANCE


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("how", ["query", "key", "value"])
def test_composition(kind, how):
    gpt, lens = pair(kind)
    with torch.inference_mode():
        theirs = lens.all_composition_scores(how[0].upper()).numpy()
    ours, _ = cephalo.composition(gpt, how)
    below = np.isfinite(ours)
    assert below.sum() == gpt.num_heads ** 2 * gpt.num_layers * (gpt.num_layers - 1) // 2
    assert difference(ours[below], theirs[below]) < TOLERANCE
    assert not theirs[~below].any()


@pytest.mark.parametrize("kind", MODELS)
def test_copying(kind):
    gpt, lens = pair(kind)
    ours = cephalo.copying(gpt)
    with torch.inference_mode():
        between = (lens.W_U @ lens.W_E).double()
        for layer in range(gpt.num_layers):
            for head in range(gpt.num_heads):
                form = lens.W_O[layer, head].double() @ between @ lens.W_V[layer, head].double()
                eigenvalues = torch.linalg.eigvals(form)
                theirs = eigenvalues.real.sum() / eigenvalues.abs().sum()
                assert difference(ours[layer, head], theirs) < TOLERANCE, (layer, head)
