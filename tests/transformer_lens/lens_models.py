"""The same parameters in cephalo and in TransformerLens."""

import pathlib
import re

import numpy as np
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

import cephalo

torch.set_num_threads(1)  # models are small, and threads that wait spin
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/activations.md"
TEXT = ("Once upon a time there were four little Rabbits, and their names were Flopsy, Mopsy, Cotton-tail, "
        "and Peter. They lived with their Mother in a sand-bank. Once upon a time there were four little "
        "Rabbits, and their names were Flopsy, Mopsy, Cotton-tail, and Peter.")


def random_gpt(**options):
    """A new model with parameters large enough that heads differ: those of a fresh one hardly look."""
    gpt = cephalo.Gpt(**{**dict(vocab_size=211, context_length=64, d_model=96, num_heads=6, num_layers=3, seed=7),
                         **options})
    drawn = np.random.default_rng(11)
    gpt.update_all(lambda name, p: np.add(p, 0.1 * drawn.standard_normal(p.shape), out=p, casting="same_kind"))
    return gpt


MODELS = {
    "built-in": cephalo.builtin_model,
    "gpt2": random_gpt,
    "shared-heads": lambda: random_gpt(positions="rotary", num_kv_heads=2, tied_head=False),
}


def config(gpt, **more):
    o = gpt.options
    d_head = o["d_model"] // o["num_heads"]
    rotary = o["positions"] == "rotary"
    if rotary:
        more = dict(rotary_dim=d_head, rotary_base=int(o["rotary"].base), rotary_adjacent_pairs=False, **more)
    if o["num_kv_heads"] != o["num_heads"]:
        more["n_key_value_heads"] = o["num_kv_heads"]
    return HookedTransformerConfig(
        n_layers=o["num_layers"], d_model=o["d_model"], n_ctx=o["context_length"], d_head=d_head,
        n_heads=o["num_heads"], d_mlp=o["d_mlp"], d_vocab=o["vocab_size"], act_fn="gelu_new",
        eps=o["norm_epsilon"], device="cpu", seed=0,
        positional_embedding_type="rotary" if rotary else "standard", **{"normalization_type": "LN", **more})


def split_heads(rows, heads):
    """rows: [heads * d_head, ...] -> [heads, d_head, ...]"""
    return rows.reshape(heads, -1, *rows.shape[1:])


def lens_state(gpt):
    """Parameter by parameter, W_U = W_E^T where the head is tied; nothing folded or centred."""
    o = gpt.options
    p = {name: torch.tensor(np.array(value)) for name, value in gpt.parameters.items()}
    width, kv_width = o["d_model"], o["num_kv_heads"] * o["d_model"] // o["num_heads"]
    kv = "" if o["num_kv_heads"] == o["num_heads"] else "_"
    state = {"embed.W_E": p["transformer.wte.weight"]}
    if o["positions"] == "learned":
        state["pos_embed.W_pos"] = p["transformer.wpe.weight"]
    for layer in range(o["num_layers"]):
        ours, theirs = f"transformer.h.{layer}.", f"blocks.{layer}."
        for norm, name in (("ln_1", "ln1"), ("ln_2", "ln2")):
            state[theirs + name + ".w"] = p[ours + norm + ".weight"]
            state[theirs + name + ".b"] = p[ours + norm + ".bias"]
        sizes = [width, kv_width, kv_width]
        weights = p[ours + "attn.c_attn.weight"].split(sizes)
        biases = p[ours + "attn.c_attn.bias"].split(sizes)
        for name, weight, bias in zip("QKV", weights, biases):
            heads = o["num_heads"] if name == "Q" else o["num_kv_heads"]
            stored = theirs + "attn." + ("" if name == "Q" else kv)
            state[stored + "W_" + name] = split_heads(weight, heads).transpose(1, 2).contiguous()
            state[stored + "b_" + name] = split_heads(bias, heads)
        state[theirs + "attn.W_O"] = split_heads(p[ours + "attn.c_proj.weight"].T, o["num_heads"])
        state[theirs + "attn.b_O"] = p[ours + "attn.c_proj.bias"]
        state[theirs + "mlp.W_in"] = p[ours + "mlp.c_fc.weight"].T
        state[theirs + "mlp.b_in"] = p[ours + "mlp.c_fc.bias"]
        state[theirs + "mlp.W_out"] = p[ours + "mlp.c_proj.weight"].T
        state[theirs + "mlp.b_out"] = p[ours + "mlp.c_proj.bias"]
    state["ln_final.w"] = p["transformer.ln_f.weight"]
    state["ln_final.b"] = p["transformer.ln_f.bias"]
    head = p["transformer.wte.weight" if o["tied_head"] else "lm_head.weight"]
    state["unembed.W_U"] = head.T
    state["unembed.b_U"] = torch.zeros(o["vocab_size"])
    return state


def lens_model(gpt, **more):
    model = HookedTransformer(config(gpt, **more))
    state = lens_state(gpt)
    for name, value in model.named_parameters():
        assert value.shape == state[name].shape, name
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys
    assert not set(missing.missing_keys) & {name for name, _ in model.named_parameters()}
    return model.eval()


def some_ids(gpt, batch=1, seed=3):
    """ids: [batch, tokens]: the text where there is a tokenizer, else random ones."""
    if gpt.tokenizer is not None:
        ids = gpt.encode(TEXT, begin=True)
        return np.array([ids[shift:len(ids) - batch + 1 + shift] for shift in range(batch)])
    return np.random.default_rng(seed).integers(0, gpt.options["vocab_size"], (batch, 40))


def names_of_page():
    """TransformerLens's names in docs/activations.md, L for the layer."""
    rows = re.findall(r"^\| `[^`]+` \| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return set(rows)


def difference(ours, theirs):
    """The largest, as a share of the largest number there; what is -inf must be so in both."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    hidden = np.isinf(theirs)
    assert (hidden == np.isinf(ours)).all()
    ours, theirs = np.where(hidden, 0, ours), np.where(hidden, 0, theirs)
    return np.abs(ours - theirs).max() / max(1.0, np.abs(theirs).max())
