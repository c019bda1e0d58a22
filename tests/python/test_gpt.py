"""Gpt: arguments, logits, parameters, files, text, training passes."""

import math
import signal

import numpy as np
import pytest
from support import attention, causal

import cephalo
from test_text import SPECIAL, small_bpe

SMALL = dict(vocab_size=40, context_length=16, d_model=16, num_heads=2, num_layers=2)


def small_gpt(**options):
    return cephalo.Gpt(**{**SMALL, "seed": 1, **options})


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 40, shape)


def layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def by_hand(gpt, tokens):
    """The whole model in NumPy."""
    p, heads = gpt.parameters, gpt.num_heads
    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][:len(tokens)]
    for layer in range(gpt.num_layers):
        h = {name.split(".", 3)[3]: value for name, value in p.items()
             if name.startswith(f"transformer.h.{layer}.")}
        normed = layer_norm(x, h["ln_1.weight"], h["ln_1.bias"])
        qkv = normed @ h["attn.c_attn.weight"].T + h["attn.c_attn.bias"]
        q, k, v = (part.reshape(len(tokens), heads, -1).swapaxes(0, 1) for part in np.split(qkv, 3, -1))
        context = attention(q, k, v, causal(len(tokens), len(tokens)))[0].swapaxes(0, 1)
        x = x + context.reshape(x.shape) @ h["attn.c_proj.weight"].T + h["attn.c_proj.bias"]
        normed = layer_norm(x, h["ln_2.weight"], h["ln_2.bias"])
        hidden = normed @ h["mlp.c_fc.weight"].T + h["mlp.c_fc.bias"]
        hidden = 0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden ** 3)))
        x = x + hidden @ h["mlp.c_proj.weight"].T + h["mlp.c_proj.bias"]
    x = layer_norm(x, p["transformer.ln_f.weight"], p["transformer.ln_f.bias"])
    return x @ p["transformer.wte.weight"].T


def cross_entropy(logits, targets):
    logits = logits - logits.max(-1, keepdims=True)
    log_softmax = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(log_softmax, targets[..., None], -1).mean()


def test_logits_are_those_of_the_model_by_hand():
    gpt = small_gpt(dtype="float64")
    tokens = ids(9)
    logits = gpt(tokens)
    assert logits.shape == (9, 40) and logits.dtype == np.float64
    assert np.abs(logits - by_hand(gpt, tokens)).max() <= 1e-12
    assert np.array_equal(gpt(tokens[None]), logits[None])
    assert np.array_equal(gpt(tokens.astype(np.int32)), logits)
    assert np.array_equal(gpt(tokens.tolist()), logits)
    assert np.abs(gpt(tokens, last_only=True) - logits[-1:]).max() <= 1e-12


def test_options_make_the_same_model_again():
    gpt = small_gpt(positions="rotary", rotary=cephalo.Rotary(base=500.0), tied_head=False, dropout=0.1)
    again = cephalo.Gpt(**gpt.options)
    assert gpt.options["d_mlp"] == 64 and gpt.options["rotary"].base == 500.0
    assert np.array_equal(gpt(ids(2, 5)), again(ids(2, 5)))
    assert gpt.parameter_count == sum(p.size for p in gpt.parameters.values())
    assert "lm_head.weight" in gpt.parameters and "transformer.wpe.weight" not in gpt.parameters
    assert gpt.parameter_kinds["lm_head.weight"] == "matrix"
    assert gpt.memory_bytes(2, 8)["parameters"] == 4 * gpt.parameter_count


def test_every_option_is_an_argument_a_property_and_in_options():
    gpt = small_gpt(num_heads=4, num_kv_heads=2, dropout=0.5, norm_epsilon=1e-3, dtype="float64")
    assert list(gpt.options) == [
        "vocab_size", "context_length", "d_model", "num_heads", "num_kv_heads", "num_layers", "d_mlp",
        "dropout", "qkv_bias", "tied_head", "positions", "rotary", "activation", "norm_epsilon", "seed",
        "dtype"]
    for name, value in gpt.options.items():
        assert getattr(gpt, name) == value, name
    assert gpt.num_kv_heads == 2 and gpt.rotary is None and gpt.dtype == "float64"
    assert repr(gpt) == (
        "Gpt(vocab_size=40, context_length=16, d_model=16, num_heads=4, num_kv_heads=2, num_layers=2, "
        f"dropout=0.5, positions='learned', norm_epsilon=0.001, dtype='float64'), "
        f"{gpt.parameter_count} parameters")
    assert repr(small_gpt()).startswith(
        "Gpt(vocab_size=40, context_length=16, d_model=16, num_heads=2, num_layers=2, "
        "positions='learned'), ")
    assert "num_kv_heads: int = 0" in cephalo.Gpt.__init__.__doc__


@pytest.mark.parametrize("arguments, options, text", [
    ((40, 16, 16, 2), {}, "Gpt: num_layers is missing"),
    ((40, 16, 16, 2, 1, 3), {}, "Gpt: 6 positional arguments, there are 5"),
    ((40, 16, 16, 2, 1), dict(d_model=3), "Gpt: d_model is given twice"),
    ((40, 16, "16", 2, 1), {}, "Gpt: d_model must be int, got str"),
    ((40, 16, 16, 2, 1), dict(seed=-1), r"Gpt: seed must be int \| None, got int"),
    ((40, 16, 16, 2, 1), dict(n_embd=3), "Gpt: unknown argument n_embd; known are vocab_size, "),
    ((40, 16, 16, 2, 1), dict(tokenizer=3), "Gpt: tokenizer must be a Bpe or None"),
])
def test_arguments_that_do_not_fit_are_named(arguments, options, text):
    with pytest.raises(TypeError, match=text):
        cephalo.Gpt(*arguments, **options)


def test_heads_may_share_keys_and_values(tmp_path):
    gpt = small_gpt(num_heads=4, num_kv_heads=2)
    assert gpt.parameters["transformer.h.0.attn.c_attn.weight"].shape == (16 + 2 * 8, 16)
    tokens = ids(2, 9)
    logits = gpt(tokens)
    cache = gpt.new_cache(2)
    parts = [gpt(tokens[:, :5], cache), gpt(tokens[:, 5:], cache)]
    assert np.abs(np.concatenate(parts, 1) - logits).max() <= 1e-5
    gpt.save(tmp_path / "model")
    again = cephalo.Gpt.load(tmp_path / "model")
    assert again.num_kv_heads == 2 and np.array_equal(again(tokens), logits)


def test_presets_are_sizes_of_gpt_2():
    gpt = cephalo.Gpt.preset("gpt2", num_layers=1, vocab_size=100, context_length=8, seed=1)
    assert (gpt.d_model, gpt.num_heads, gpt.num_layers, gpt.seed) == (768, 12, 1, 1)
    small = cephalo.Gpt.preset("gpt2-small", num_layers=1, vocab_size=100, context_length=8, seed=1)
    assert small.options == gpt.options
    assert {"gpt2-xl", "gpt3-xl", "gpt3"} <= set(cephalo.gpt_preset_names())
    with pytest.raises(ValueError, match="gpt2-medium"):
        cephalo.Gpt.preset("gpt5")
    with pytest.raises(TypeError):
        cephalo.Gpt.preset("gpt2", n_embd=3)


@pytest.mark.parametrize("options, text", [
    (dict(num_heads=3), r"Gpt: d_model \(16\) must be a multiple of num_heads \(3\)"),
    (dict(vocab_size=0), r"Gpt: vocab_size \(0\) must be > 0"),
    (dict(dropout=1.0), r"Gpt: dropout \(1\) must be in \[0, 1\)"),
    (dict(positions="alibi"), 'positions is "alibi"; it must be one of "learned", "rotary"'),
    (dict(activation="relu"), 'activation is "relu"'),
])
def test_models_that_cannot_be_are_named(options, text):
    with pytest.raises(ValueError, match=text):
        small_gpt(**options)


def test_ids_that_do_not_fit_are_named():
    gpt = small_gpt()
    with pytest.raises(ValueError, match="40"):
        gpt([3, 40])
    with pytest.raises(ValueError, match="context_length"):
        gpt(ids(17))
    with pytest.raises(TypeError, match="float32"):
        gpt(np.ones((2, 3), np.float32))
    with pytest.raises(TypeError, match="Gpt: ids must be an array of integers, a list"):
        gpt([[1, 2], [3]])
    with pytest.raises(TypeError, match="Gpt: ids is a str"):
        gpt("text")


def test_a_cache_continues_its_sequences():
    gpt = small_gpt()
    tokens = ids(2, 9)
    cache = gpt.new_cache(2)
    parts = [gpt(tokens[:, :5], cache)] + [gpt(tokens[:, i:i + 1], cache) for i in range(5, 9)]
    assert np.abs(np.concatenate(parts, 1) - gpt(tokens)).max() <= 1e-5
    assert cache.tokens == len(cache) == 9
    cache.clear()
    assert cache.tokens == 0


def test_parameters_are_read_only_and_change_by_update():
    gpt = small_gpt().prepare()
    bias = gpt.parameters["transformer.ln_f.bias"]
    with pytest.raises(ValueError, match="read-only"):
        bias[0] = 1.0
    before = gpt(ids(4))
    gpt.update("transformer.ln_f.bias", np.ones(16, np.float32))
    assert gpt.version == 1 and bias[0] == 1.0 and not np.array_equal(gpt(ids(4)), before)
    with pytest.raises(ValueError, match="nothing"):
        gpt.update("nothing", np.ones(16, np.float32))
    with pytest.raises(ValueError, match="shape"):
        gpt.update("transformer.ln_f.bias", np.ones(15, np.float32))


def test_update_all_lends_the_memory_of_every_parameter():
    gpt = small_gpt()
    seen = []

    def halve(name, parameter):
        seen.append(name)
        parameter *= 0.5

    expected = {name: value * 0.5 for name, value in gpt.parameters.items()}
    gpt.update_all(halve)
    assert seen == list(expected) and gpt.version == 1
    assert all(np.array_equal(gpt.parameters[name], value) for name, value in expected.items())
    with pytest.raises(ValueError, match="Gpt: it is being changed"):
        gpt.update_all(lambda name, parameter: gpt([1]))
    assert gpt([1]).shape == (1, 40)  # still usable


def test_attention_layers_are_copies_that_trace_and_look():
    gpt = small_gpt()
    inputs = gpt.attention_inputs(ids(6))
    layer = gpt.attention(1)
    assert len(inputs) == 2 and inputs[1].shape == (1, 6, 16)
    recorded = cephalo.Recording(gpt, ids(6)).weights(1)
    assert np.abs(layer.trace(inputs[1])["weights"][0] - recorded).max() <= 1e-6
    layer.update("out_proj.bias", np.ones(16, np.float32))
    assert not gpt.attention(1).parameters["out_proj.bias"].any()
    with pytest.raises(ValueError, match="layer 2 of 2"):
        gpt.attention(2)


@pytest.mark.parametrize("names", ["hugging_face", "book"])
def test_folders_bring_a_model_back(tmp_path, names):
    bpe = small_bpe()
    gpt = small_gpt(vocab_size=bpe.vocab_size, tokenizer=bpe)
    gpt.bos_token_id = gpt.eos_token_id = bpe.find(SPECIAL)
    gpt.save(tmp_path / "model", names=names)
    loaded = cephalo.Gpt.load(tmp_path / "model")
    assert np.array_equal(loaded(ids(5)), gpt(ids(5)))
    assert loaded.tokenizer.fingerprint == bpe.fingerprint and loaded.eos_token_id == bpe.vocab_size - 1
    with pytest.raises((OSError, ValueError)):
        gpt.save(tmp_path / "model", names=names)
    gpt.save(tmp_path / "model", names=names, dtype="bfloat16", replace=True)
    assert np.abs(cephalo.Gpt.load(tmp_path / "model")(ids(5)) - gpt(ids(5))).max() <= 1e-2
    with pytest.raises(OSError, match="nowhere"):
        cephalo.Gpt.load(tmp_path / "nowhere")


def test_nan_in_a_file_is_a_warning_or_an_error(tmp_path):
    gpt = small_gpt()
    gpt.update("transformer.ln_f.bias", np.full(16, np.nan, np.float32))
    gpt.save(tmp_path / "model")
    with pytest.warns(UserWarning, match="ln_f"):
        assert cephalo.Gpt.load(tmp_path / "model").tokenizer is None
    with pytest.raises(ValueError, match="ln_f"):
        cephalo.Gpt.load(tmp_path / "model", strict=True)


def test_a_pass_gives_loss_and_gradients():
    gpt = small_gpt(dtype="float64")
    tokens, targets = ids(2, 7), ids(2, 7, seed=1)
    loss, gradients = gpt.train_pass(tokens, targets)
    assert abs(loss - cross_entropy(gpt(tokens), targets)) <= 1e-12
    assert abs(gpt.loss(tokens, targets) - loss) <= 1e-12
    assert list(gradients) == list(gpt.parameters) and len(gradients) == len(gpt.parameters)
    name, at, step = "transformer.h.1.mlp.c_fc.weight", (3, 5), 1e-5
    losses = []
    for move in (step, -step):
        moved = small_gpt(dtype="float64")
        value = gpt.parameters[name].copy()
        value[at] += move
        moved.update(name, value)
        losses.append(moved.loss(tokens, targets))
    assert abs((losses[0] - losses[1]) / (2 * step) - gradients[name][at]) <= 1e-8


def test_gradients_add_up_and_targets_may_be_ignored():
    gpt = small_gpt()
    tokens, targets = ids(3, 5), ids(3, 5, seed=1)
    once = gpt.train_pass(tokens, targets).gradients
    twice = gpt.new_gradients()
    for _ in range(2):
        assert gpt.train_pass(tokens, targets, twice).gradients is twice
    name = "transformer.wte.weight"
    assert np.allclose(twice[name], 2 * once[name], rtol=1e-5)
    twice.zero()
    assert not twice[name].any()
    targets[:, 3:] = -100
    assert abs(gpt.loss(tokens, targets) - gpt.loss(tokens[:, :3], targets[:, :3])) <= 1e-6
    assert gpt.loss(tokens, np.full((3, 5), -100)) == 0
    assert abs(gpt.loss(tokens[0], targets[0]) - gpt.loss(tokens[:1], targets[:1])) <= 1e-7
    with pytest.raises(ValueError, match=r"Gpt.loss: targets \[3, 4\] must have the shape of ids"):
        gpt.loss(tokens, targets[:, :4])
    with pytest.raises(ValueError, match="40"):
        gpt.loss(tokens, np.full((3, 5), 40))
    with pytest.raises(ValueError, match="other sizes"):
        small_gpt(d_model=8).train_pass(tokens, targets, twice)
    with pytest.raises(KeyError):
        twice["nothing"]


def test_text_needs_a_tokenizer_and_ids_do_not():
    gpt = small_gpt()
    found = gpt.generate([1, 2, 3], 5, seed=3)
    assert len(found.ids) == 5 and found.text is None and not found.stopped
    assert found.tokens_per_second > 0
    with pytest.raises(ValueError, match="generate: this model has no tokenizer"):
        gpt.generate("the cat", 5)
    with pytest.raises(ValueError, match="too large for vocab_size 40"):
        gpt.tokenizer = small_bpe()


def text_gpt():
    bpe = small_bpe()
    return small_gpt(vocab_size=bpe.vocab_size, tokenizer=bpe)


def test_a_text_is_continued():
    gpt = text_gpt()
    found = gpt.generate("the cat", 6, temperature=0)
    assert found.text == gpt.tokenizer.decode(found.ids)
    assert gpt.generate(gpt.encode("the cat"), 6, temperature=0).ids == found.ids
    assert gpt.generate("the cat", 6, temperature=0, cached=False).ids == found.ids
    penalised = gpt.generate("the cat", 6, temperature=0, repetition_penalty=50.0)
    assert len(set(penalised.ids)) == 6  # an id that just came is hardly drawn again
    with pytest.warns(UserWarning, match="the prompt has 40 tokens and the model's context_length is"):
        gpt.generate([1] * 40, 1)
    drawn = gpt.generate("the cat", 6, seed=5, top_k=50, top_p=0.9)
    assert drawn.ids == gpt.generate("the cat", 6, seed=5, top_k=50, top_p=0.9).ids != found.ids
    begun = gpt.encode("the cat", begin=True)
    assert begun == [gpt.first_token, *gpt.encode("the cat")] and gpt.first_token == len(gpt.tokenizer) - 1
    assert gpt.encode("") == [gpt.first_token]
    assert gpt.piece(begun[0]) == SPECIAL.encode()
    for wrong in (dict(temperature=-1), dict(top_p=0), dict(stop=[1000])):
        with pytest.raises(ValueError, match="generate"):
            gpt.generate("the cat", 6, **wrong)


def test_tokens_that_stop_a_text():
    gpt = text_gpt()
    first = gpt.generate("the cat", 6, temperature=0).ids
    stopped = gpt.generate("the cat", 6, temperature=0, stop=[first[2]])
    end = first.index(first[2])
    assert stopped.stopped and stopped.ids == first[:end + 1]
    assert stopped.text == gpt.tokenizer.decode(first[:end])
    gpt.eos_token_id = first[2]
    assert gpt.generate("the cat", 6, temperature=0).ids == stopped.ids
    assert gpt.generate("the cat", 6, temperature=0, stop=[]).ids == first


def test_on_token_is_told_and_may_end_the_text_or_use_the_model():
    gpt = text_gpt()
    told = []

    def on_token(id):
        told.append(id)
        gpt([id])  # nobody holds it meanwhile
        return len(told) < 3

    found = gpt.generate("the cat", 8, on_token=on_token)
    assert found.ids == told and len(told) == 3 and found.stopped
    assert len(gpt.generate("the cat", 4, on_token=lambda id: None).ids) == 4

    def complain(id):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        gpt.generate("the cat", 8, on_token=complain)
    assert len(gpt.generate("the cat", 2).ids) == 2


def test_ctrl_c_ends_a_long_text():
    gpt = text_gpt()
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with pytest.raises(KeyboardInterrupt):
        gpt.generate("the cat", 10_000_000)


def test_a_token_is_drawn_from_logits():
    logits = np.log(np.array([0.1, 0.7, 0.2]))
    generator = cephalo.TorchGenerator(0)
    assert cephalo.sample_token(logits, 0, generator=generator) == 1
    drawn = [cephalo.sample_token(logits, generator=generator) for _ in range(2000)]
    assert np.abs(np.bincount(drawn) / 2000 - [0.1, 0.7, 0.2]).max() <= 0.03
    assert set(cephalo.sample_token(logits, top_k=2, generator=generator) for _ in range(99)) == {1, 2}


def test_embeddings_are_drawn_and_added():
    generator = cephalo.TorchGenerator(5)
    tokens, positions = cephalo.Embedding(7, 4, generator), cephalo.Embedding(3, 4, generator)
    drawn = cephalo.TorchGenerator(5)
    assert np.array_equal(tokens.table, drawn.randn((7, 4)))
    assert np.array_equal(cephalo.Embedding(7, 4, seed=5).table, tokens.table)
    chosen = np.array([[1, 6, 1]])
    assert np.array_equal(tokens(chosen), tokens.table[chosen])
    x = cephalo.embed_tokens(tokens, positions, chosen)
    assert np.array_equal(x, tokens.table[chosen] + positions.table)
    with pytest.raises(ValueError, match="id 7 at position 1"):
        tokens([0, 7])
    with pytest.raises(ValueError, match="read-only"):
        tokens.table[0] = 0


@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu_erf"])
def test_parts_of_a_model_work_by_themselves(activation):
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    norm, mlp = cephalo.LayerNorm(4, dtype="float64"), cephalo.Mlp(4, 6, activation, dtype="float64")
    norm.weight[:], norm.bias[:] = [1, 2, 3, 4], 0.5
    assert np.abs(norm(x) - layer_norm(x, norm.weight, norm.bias)).max() <= 1e-12
    for array in (mlp.fc_weight, mlp.fc_bias, mlp.proj_weight, mlp.proj_bias):
        array[:] = np.random.default_rng(1).standard_normal(array.shape)
    h = x @ mlp.fc_weight.T + mlp.fc_bias
    inner = {"gelu_erf": np.vectorize(math.erf)(h / np.sqrt(2)),
             "gelu_tanh": np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h ** 3))}[activation]
    assert np.abs(mlp(x) - (0.5 * h * (1 + inner) @ mlp.proj_weight.T + mlp.proj_bias)).max() <= 1e-12
    with pytest.raises(TypeError, match="x is float32, the parameters are float64"):
        mlp(x.astype(np.float32))
    with pytest.raises(ValueError, match=r"LayerNorm: the last dimension of x \[2, 3\] must be 4"):
        norm(x[..., 0])


def test_rung_8_goes_from_text_to_context_vectors():
    rung = cephalo.pipeline("The cat sat on the mat", d_in=16, d_out=16, num_heads=2, context_length=8)
    assert rung.tokens == ["The", "cat", "sat", "on", "the", "mat"]
    assert rung.ids.tolist() == [[0, 1, 4, 3, 5, 2]] and rung.x.shape == (1, 6, 16)
    assert np.array_equal(rung.x, rung.token_embeddings + rung.position_embeddings)
    assert np.array_equal(rung.layer(rung.x), rung.context)
    trace = rung.trace()
    assert list(trace)[:4] == ["ids", "token_embeddings", "position_embeddings", "x"]
    assert np.abs(trace["output"] - rung.context).max() <= 1e-6
    assert ">4</td>" in trace._repr_html_() and "TOKENIZE" in repr(trace)
    assert cephalo.pipeline("one word", seed=1).context.shape == (1, 2, 768)
    with pytest.raises(ValueError, match="no word"):
        cephalo.pipeline("")
