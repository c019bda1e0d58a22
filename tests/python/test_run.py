"""gpt.run: what is kept, what is replaced, and what is refused."""

import numpy as np
import pytest
from test_gpt import ids, small_gpt

import cephalo

CAUSAL = np.tril(np.ones((9, 9), bool))


@pytest.mark.parametrize("options", [{}, {"dtype": "float64"}, {"positions": "rotary", "num_kv_heads": 1}])
def test_what_is_kept_leaves_the_logits_as_they_are(options):
    gpt = small_gpt(**options)
    tokens = ids(3, 9)
    run = gpt.run(tokens, keep=["layer.1.k", "blocks.1.attn.hook_k", "layer.0.weights", "last_norm"])
    assert (run.logits == gpt(tokens)).all()
    kv_heads = gpt.options["num_kv_heads"]
    assert run["layer.1.k"].shape == (3, kv_heads, 9, 8)
    assert run["blocks.1.attn.hook_k"].shape == (3, 9, kv_heads, 8)
    assert (run["blocks.1.attn.hook_k"] == run["layer.1.k"].swapaxes(1, 2)).all()
    assert ((run["layer.0.weights"] > 0) == CAUSAL).all()
    assert run["last_norm"].dtype == gpt(tokens).dtype


def test_a_run_is_a_mapping_that_shows_itself():
    run = small_gpt().run(ids(9), keep=["layer.1.weights", "layer.0.resid_pre"])
    assert list(run.keys()) == list(run) == ["layer.1.weights", "layer.0.resid_pre"]
    assert len(run) == 2 and "layer.1.weights" in run and "layer.0.q" not in run
    assert set(dict(run)) == set(run)
    assert repr(run) == ("ModelRun\n  logits             [1, 9, 40]\n  layer.1.weights    [1, 2, 9, 9]\n"
                         "  layer.0.resid_pre  [1, 9, 16]")
    assert "<td><code>layer.1.weights</code></td><td>[1, 2, 9, 9]</td>" in run._repr_html_()
    assert (run["logits"] == run.logits).all()
    with pytest.raises(KeyError, match="layer.0.q.*was not kept"):
        run["layer.0.q"]


def test_text_goes_by_the_tokenizer():
    gpt = cephalo.builtin_model()
    run = gpt.run("The cat sat", keep=["layer.3.weights"])
    tokens = gpt.encode("The cat sat", begin=True)
    assert run["layer.3.weights"].shape == (1, 8, len(tokens), len(tokens))
    assert (run.logits[0] == gpt(np.array(tokens))).all()
    bare = gpt.run("The cat sat", begin=False)
    assert (bare.logits[0] == gpt(np.array(gpt.encode("The cat sat", begin=False)))).all()


def test_a_function_changes_in_place_or_returns_another_value():
    gpt, tokens = small_gpt(), ids(2, 9)
    seen = []

    def in_place(z):
        assert z.shape == (2, 2, 9, 8)
        z[:, 1] = 0.0
        seen.append(z)

    def returned(z):
        assert z.shape == (2, 9, 2, 8)
        return z * np.array([1.0, 0.0])[:, None]

    first = gpt.run(tokens, ["layer.0.context"], {"layer.0.context": in_place})
    second = gpt.run(tokens, replace={"blocks.0.attn.hook_z": returned})
    assert (first.logits == second.logits).all()
    assert (first.logits != gpt(tokens)).any()
    assert (first["layer.0.context"][:, 1] == 0).all() and (first["layer.0.context"][:, 0] != 0).any()
    assert (seen[0] == first["layer.0.context"]).all()  # what was handed out may be kept


def test_an_array_takes_the_place_of_a_function():
    gpt = small_gpt()
    clean, corrupt = ids(9, seed=1), ids(9, seed=2)
    kept = gpt.run(clean, keep=["layer.1.resid_pre", "blocks.1.attn.hook_z"])
    patched = gpt.run(corrupt, replace={"layer.1.resid_pre": kept["layer.1.resid_pre"]})
    assert (patched.logits == kept.logits).all()
    # In the order of its name, and of a single vector for all tokens.
    z = gpt.run(corrupt, ["layer.1.context"], {"blocks.1.attn.hook_z": kept["blocks.1.attn.hook_z"]})
    assert (z["layer.1.context"] == kept["blocks.1.attn.hook_z"].swapaxes(1, 2)).all()
    mean = np.arange(16, dtype=np.float64)
    run = gpt.run(corrupt, ["layer.0.mlp_out"], {"layer.0.mlp_out": mean})
    assert (run["layer.0.mlp_out"] == mean.astype(np.float32)).all()


def test_weights_that_look_at_the_first_token_alone_bring_its_values():
    gpt, tokens = small_gpt(), ids(9)

    def first(weights):
        weights[:] = 0
        weights[..., 0] = 1

    run = gpt.run(tokens, ["layer.0.context", "layer.0.v"], {"layer.0.weights": first})
    assert np.abs(run["layer.0.context"] - run["layer.0.v"][:, :, :1]).max() < 1e-6


@pytest.mark.parametrize("name, said", [
    ("layer.0.contxt", 'did you mean "layer.0.context"'),
    ("blocks.9.hook_resid_pre", "the model has layers 0 to 1"),
    ("", "names are like"),
])
def test_A16_a_name_that_is_not_there_is_refused(name, said):
    gpt = small_gpt()
    with pytest.raises(ValueError, match=said):
        gpt.run(ids(9), keep=[name])
    with pytest.raises(ValueError, match=said):
        gpt.run(ids(9), replace={name: lambda value: None})


def test_A16_what_does_not_fit_is_refused():
    gpt, tokens = small_gpt(), ids(9)
    with pytest.raises(ValueError, match=r'"layer.0.q" is \[1, 2, 9, 8\], what replaces it \[9, 8, 2\]'):
        gpt.run(tokens, replace={"layer.0.q": np.zeros((9, 8, 2))})
    with pytest.raises(ValueError, match=r'what replaces it \[3\]'):
        gpt.run(tokens, replace={"layer.0.q": lambda q: np.zeros(3)})
    with pytest.raises(TypeError, match=r'replace\["layer.0.q"\]'):
        gpt.run(tokens, replace={"layer.0.q": "zero"})
    with pytest.raises(TypeError):
        gpt.run(tokens, keep="layer.0.q")
    with pytest.raises(ValueError, match="exceed context_length"):
        gpt.run(ids(17))
    with pytest.raises(ValueError, match="holds no token"):
        gpt.run(np.zeros((2, 0), np.int64))


def test_A16_what_a_function_raises_arrives():
    gpt = small_gpt()

    def fails(value):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        gpt.run(ids(9), replace={"layer.0.q": fails})


def test_A16_a_function_may_read_the_model_and_not_change_it():
    gpt, tokens = small_gpt(), ids(9)
    logits = gpt(tokens)

    def reads(q):
        assert (gpt(tokens) == logits).all()

    assert (gpt.run(tokens, replace={"layer.0.q": reads}).logits[0] == logits).all()
    with pytest.raises(ValueError, match="Gpt: it is being read"):
        gpt.run(tokens, replace={"layer.0.q": lambda q: gpt.update("transformer.ln_f.bias", np.ones(16))})
    assert (gpt(tokens) == logits).all()
