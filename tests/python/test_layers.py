"""Layers: the rungs by their names, parameters, files, traces, training, caches."""

import numpy as np
import pytest
from support import attention, causal, normal

import cephalo


RUNGS = {
    "SelfAttention": (lambda **o: cephalo.SelfAttention(8, 6, **o), 6),
    "CausalAttention": (lambda **o: cephalo.CausalAttention(8, 6, 16, 0.0, **o), 6),
    "HeadWrapper": (lambda **o: cephalo.HeadWrapper(8, 3, 16, 0.0, 2, **o), 6),
    "MultiHeadAttention": (lambda **o: cephalo.MultiHeadAttention(8, 6, 16, 0.0, 2, **o), 6),
    "EasyMultiHeadAttention": (lambda **o: cephalo.EasyMultiHeadAttention(**o), 8),
    "FastMultiHeadAttention": (lambda **o: cephalo.FastMultiHeadAttention(8, 2, **o), 8),
}


@pytest.mark.parametrize("rung", RUNGS)
def test_every_rung_calls_traces_and_learns(rung):
    make, width = RUNGS[rung]
    layer = make(seed=123)
    assert isinstance(layer, cephalo.MultiHeadAttention) and repr(layer).startswith(rung)
    x = normal(2, 5, 8)
    y = layer(x)
    assert y.shape == (2, 5, width) and layer(x[0]).shape == (5, width)
    trace = layer.trace(x)
    assert list(trace)[0] == "x" and np.allclose(list(trace.values())[-1], y, atol=1e-6)
    assert np.array_equal(make(seed=cephalo.TorchGenerator(123))(x), y)
    assert cephalo.gradcheck(layer, x, projections=2)
    with pytest.raises(ValueError, match=rung):
        layer(normal(2, 5, 7))


def test_aliases_are_the_same_classes():
    assert cephalo.CausalSelfAttention is cephalo.CausalAttention
    assert cephalo.MultiHeadSelfAttention is cephalo.EasyMultiHeadAttention


def test_rung_1_needs_no_parameters():
    x = normal(5, 4, dtype=np.float64)
    context, weights = cephalo.simple_attention(x)
    assert np.abs(weights - attention(x * 2.0, x, x)[1]).max() <= 1e-12
    assert np.abs(context - weights @ x).max() <= 1e-12
    assert np.allclose(cephalo.trace_simple_attention(x)["weights"], weights)


def test_the_layer_is_its_six_steps():
    layer = cephalo.MultiHeadAttention(8, 6, 16, 0.0, 2, seed=1, dtype="float64")
    x = normal(2, 5, 8, dtype=np.float64)
    p = layer.parameters
    q, k, v = (np.swapaxes((x @ p[f"W_{n}.weight"].T).reshape(2, 5, 2, 3), 1, 2)
               for n in ("query", "key", "value"))
    context = np.swapaxes(attention(q, k, v, causal(5, 5))[0], 1, 2).reshape(2, 5, 6)
    y = context @ p["out_proj.weight"].T + p["out_proj.bias"]
    assert np.abs(layer(x) - y).max() <= 1e-12


def test_rotary_positions_are_seen_and_never_lost(tmp_path):
    layer = cephalo.MultiHeadAttention(8, 8, 16, 0.0, 2, rotary=cephalo.Rotary(base=500.0), seed=1)
    assert "num_heads=2, rotary=Rotary(interleaved=False, base=500)" in repr(layer)
    assert "rotary" not in repr(cephalo.MultiHeadAttention(8, 8, 16, 0.0, 2))
    with pytest.raises(ValueError, match="no PyTorch module of form separate has rotary positions"):
        layer.to_torch_state_dict()
    with pytest.raises(ValueError, match="form joined cannot hold rotary positions"):
        layer.save(tmp_path / "fused.safetensors", "fused")
    layer.save(tmp_path / "fused.safetensors", "joined", allow_rotary=True)
    assert cephalo.load(tmp_path / "fused.safetensors").rotary.base == 500.0


def test_a_layer_out_of_a_folder_is_the_models(tmp_path):
    gpt = cephalo.Gpt(61, 16, 8, 2, 2, positions="rotary", seed=1)
    gpt.save(tmp_path / "model")
    x = normal(2, 5, 8)
    for number in (0, 1):
        layer = cephalo.load(tmp_path / "model/model.safetensors", prefix=f"transformer.h.{number}.")
        assert layer.rotary is not None and layer.num_heads == 2 and layer.context_length == 16
        assert np.array_equal(layer(x), gpt.attention(number)(x))


def test_rung_7_takes_a_bare_array_and_no_other_does():
    layer = cephalo.FastMultiHeadAttention(8, 2, seed=1)
    x = normal(2, 5, 8)
    expected = layer(x, mask=cephalo.causal())
    hidden = np.tril(np.ones((5, 5)))
    assert np.array_equal(layer(x, hidden), expected)
    assert np.array_equal(layer(x, mask=hidden, threads=1), expected)
    with pytest.raises(TypeError, match="EasyMultiHeadAttention: mask is an ndarray"):
        cephalo.EasyMultiHeadAttention(seed=1)(x, mask=np.ones((5, 5)))


@pytest.mark.parametrize("arguments, text", [
    ((256, 256, 10, 0.0, 12), r"d_out \(256\) must be divisible by num_heads \(12\)"),
    ((8, 8, 10, 0.0, 0), r"num_heads \(0\)"),
    ((8, 8, 10, 0.0, -2), r"num_heads \(-2\)"),
    ((0, 8, 10, 0.0, 2), r"d_in \(0\)"),
    ((8, 8, 10, 1.0, 2), r"dropout \(1\)"),
    ((8, 8, 10, float("nan"), 2), "dropout"),
    ((8, 8, -1, 0.0, 2), "context_length"),
])
def test_layers_that_cannot_be_are_named(arguments, text):
    with pytest.raises(ValueError, match=f"MultiHeadAttention: .*{text}"):
        cephalo.MultiHeadAttention(*arguments)


def test_words_and_seeds_that_are_none_are_named():
    with pytest.raises(ValueError, match='form is "book"; it must be one of "separate", "raw"'):
        cephalo.MultiHeadAttention(8, 8, 4, 0.0, 2, form="book")
    with pytest.raises(ValueError, match='dtype is "int8"'):
        cephalo.MultiHeadAttention(8, 8, 4, 0.0, 2, dtype=np.int8)
    with pytest.raises(TypeError, match="seed must be"):
        cephalo.MultiHeadAttention(8, 8, 4, 0.0, 2, seed="one")


def test_more_tokens_than_context_length_are_an_error():
    with pytest.raises(ValueError, match=r"17.*16|16.*17"):
        cephalo.MultiHeadAttention(8, 8, 16, 0.0, 2)(normal(1, 17, 8))


def test_empty_inputs_give_empty_outputs():
    layer = cephalo.MultiHeadAttention(8, 6, 16, 0.0, 2)
    assert layer(np.zeros((0, 5, 8), np.float32)).shape == (0, 5, 6)
    assert layer(np.zeros((2, 0, 8), np.float32)).shape == (2, 0, 6)


def test_parameters_are_read_only_views_and_change_by_update():
    layer = cephalo.MultiHeadAttention(8, 8, 16, 0.0, 2, seed=1).prepare()
    bias = layer.parameters["out_proj.bias"]
    with pytest.raises(ValueError, match="read-only"):
        bias[0] = 1.0
    assert layer.prepared and layer.version == 0
    layer.update("out_proj.bias", np.arange(8.0))
    assert np.array_equal(bias, np.arange(8.0)) and layer.version == 1 and not layer.prepared
    with pytest.raises(ValueError, match="out_proj.bias"):
        layer.update("out_proj.bias", np.zeros(7, np.float32))
    with pytest.raises(ValueError, match="W_query.weight"):
        layer.update("nothing", np.zeros(7, np.float32))


def test_a_layer_has_the_names_of_the_books_class():
    mha = cephalo.MultiHeadAttention(6, 8, 5, 0.0, 2, seed=1)
    assert np.shares_memory(mha.W_query.weight, mha.parameters["W_query.weight"])
    assert mha.W_query.bias is None and mha.out_proj.bias.shape == (8,)
    assert repr(mha.W_query) == "W_query(weight: (8, 6))"
    assert repr(mha.out_proj) == "out_proj(weight: (8, 8), bias: (8,))"
    assert np.array_equal(mha.mask, np.triu(np.ones((5, 5), np.float32), 1))
    assert {"W_query", "out_proj", "mask", "state_dict"} <= set(dir(mha))
    state = mha.state_dict()
    assert list(state) == ["mask", "W_query.weight", "W_key.weight", "W_value.weight",
                           "out_proj.weight", "out_proj.bias"]
    assert np.shares_memory(state["W_key.weight"], mha.W_key.weight)


def test_every_rung_has_its_parts_by_name():
    wrapper = cephalo.HeadWrapper(6, 4, 5, 0.0, 3, seed=1)
    assert len(wrapper.heads) == 3 and wrapper.heads[-1].W_key.weight.shape == (4, 6)
    assert list(wrapper.state_dict())[:3] == ["heads.0.mask", "heads.0.W_query.weight",
                                              "heads.0.W_key.weight"]
    assert cephalo.SelfAttention(6, 4, form="raw", seed=1).W_query.shape == (6, 4)
    fast = cephalo.FastMultiHeadAttention(8, 2, seed=1)
    assert fast.qkv_proj.weight.shape == (24, 8) and set(fast.state_dict()) == set(fast.parameters)
    for rung in (wrapper, fast):
        for name, array in rung.parameters.items():
            part = rung
            for step in name.split("."):
                part = part[int(step)] if step.isdigit() else getattr(part, step)
            assert np.shares_memory(part, array), name


@pytest.mark.parametrize("use, text", [
    (lambda mha: mha.W_q, "'MultiHeadAttention' object has no attribute 'W_q'; its parameters are in "
                          "W_query, W_key, W_value, out_proj"),
    (lambda mha: mha.W_query.gain, "W_query has no gain; it has weight"),
    (lambda mha: setattr(mha.W_query, "weight", 0), r"W_query.weight is set by update\('W_query.weight'"),
    (lambda mha: mha.mask, "this MultiHeadAttention has no mask: causal=True, context_length=0"),
])
def test_a_part_that_is_not_there_is_named(use, text):
    with pytest.raises(AttributeError, match=text):
        use(cephalo.MultiHeadAttention(6, 8, 0, 0.0, 2, seed=1))


def test_dropout_acts_in_training_alone():
    layer = cephalo.MultiHeadAttention(8, 8, 16, 0.5, 2, seed=1)
    x = normal(1, 6, 8)
    assert layer.training and not np.array_equal(layer(x), layer(x))
    assert np.array_equal(layer(x, call=7), layer(x, call=7))
    assert layer.eval() is layer and not layer.training
    assert np.array_equal(layer(x), layer(x))
    assert layer.train() is layer and layer.training


def test_torch_streams_draw_from_the_generator():
    layer = cephalo.MultiHeadAttention(8, 8, 16, 0.5, 2, seed=1, dropout_stream="torch")
    x = normal(1, 6, 8)
    first = layer(x, generator=cephalo.TorchGenerator(5))
    assert np.array_equal(layer(x, generator=cephalo.TorchGenerator(5)), first)
    with pytest.raises(ValueError, match="generator"):
        layer(x)


def test_files_bring_a_layer_back(tmp_path):
    layer = cephalo.MultiHeadAttention(8, 8, 16, 0.1, 2, seed=1, rotary=cephalo.Rotary(base=500.0))
    x = normal(2, 6, 8)
    layer.save(tmp_path / "layer.safetensors")
    loaded = cephalo.load(tmp_path / "layer.safetensors")
    assert not loaded.training and loaded.dropout == 0.1
    assert np.array_equal(loaded(x), layer.eval()(x))
    layer.save(str(tmp_path / "fused.safetensors"), form="fused", allow_rotary=True)
    assert list(cephalo.load(tmp_path / "fused.safetensors").parameters)[0] == "qkv_proj.weight"
    with pytest.raises(OSError, match="nowhere"):
        cephalo.load(tmp_path / "nowhere.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"1234567")
    with pytest.raises(ValueError, match="8 bytes"):
        cephalo.load(tmp_path / "broken.safetensors")


def test_backward_gives_gradients_under_the_names_of_parameters():
    layer = cephalo.MultiHeadAttention(8, 6, 16, 0.0, 2, d_kv=4, causal=False, seed=1)
    x, kv = normal(2, 5, 8), normal(2, 7, 4, seed=1)
    y, saved = layer.forward_train(x, kv=kv)
    assert np.array_equal(y, layer(x, kv=kv)) and saved.bytes > 0
    d = layer.backward(saved, y)
    assert d.dx.shape == x.shape and d.dkv.shape == kv.shape
    assert list(d.gradients) == list(layer.parameters)
    assert np.allclose(d.gradients["out_proj.bias"], y.sum((0, 1)), rtol=1e-5)
    once = d.gradients["W_query.weight"].copy()
    again = layer.backward(saved, y, d.gradients)
    assert again.gradients is d.gradients
    assert np.allclose(d.gradients["W_query.weight"], 2 * once, rtol=1e-6)
    d.gradients.zero()
    assert not d.gradients["W_query.weight"].any()
    with pytest.raises(KeyError):
        d.gradients["nothing"]


@pytest.mark.parametrize("rotary", [False, True])
def test_a_saved_pass_shows_what_its_heads_worked_with(rotary):
    layer = cephalo.MultiHeadAttention(8, 8, 16, 0.5, 4, num_kv_heads=2, rotary=rotary, seed=1)
    x, mask = normal(2, 5, 8), cephalo.window(2, 0)
    saved = layer.forward_train(x, mask=mask, drop=False)[1]
    q, k, v, lse, joined = saved.heads
    assert (q.shape, k.shape, v.shape, lse.shape) == ((2, 4, 5, 2), (2, 2, 5, 2), (2, 2, 5, 2), (2, 4, 5))
    assert repr(joined) == "causal() & window(2, 0)" and not q.flags.writeable
    assert np.shares_memory(q, saved.heads.q)  # no copy
    trace = layer.eval().trace(x, mask=mask)
    assert np.abs(q - trace["q_heads"]).max() < 1e-6 and np.abs(v - trace["v_heads"]).max() < 1e-6
    del saved, x  # arrays keep their memory
    assert np.abs(cephalo.weights(q, k, lse, mask=joined) - trace["weights"]).max() < 1e-6
    free = cephalo.MultiHeadAttention(8, 8, 16, 0.0, 4, causal=False)
    assert free.forward_train(normal(5, 8))[1].heads.mask is None


def test_keeping_without_dropout_is_no_call():
    one, other = (cephalo.MultiHeadAttention(8, 8, 16, 0.5, 2, seed=1) for _ in range(2))
    x = normal(2, 5, 8)
    y = one.forward_train(x, drop=False)[0]
    assert np.array_equal(one(x), other(x))  # the same call number drops the same
    assert np.array_equal(y, one.eval()(x))


def test_backward_at_the_wrong_time_is_an_error():
    layer = cephalo.MultiHeadAttention(8, 8, 16, 0.0, 2, seed=1)
    x = normal(2, 5, 8)
    y, saved = layer.forward_train(x)
    with pytest.raises(ValueError, match="dy is"):
        layer.backward(saved, y[:, :4])
    with pytest.raises(ValueError, match="another layer"):
        cephalo.MultiHeadAttention(8, 8, 16, 0.0, 2).backward(saved, y)
    layer.update("out_proj.bias", np.zeros(8, np.float32))
    with pytest.raises(ValueError, match="version 0 then, 1 now"):
        layer.backward(saved, y)
    with pytest.raises(TypeError):
        layer.backward(None, y)


CACHES = {
    "growing": lambda **o: cephalo.KVCache.growing(2, 2, head_dim=4, **o),
    "ring": lambda **o: cephalo.KVCache.ring(16, 2, 2, head_dim=4, **o),
    "paged": lambda **o: cephalo.KVCache.paged(3, 2, 2, head_dim=4, **o),
}


@pytest.mark.parametrize("kind", CACHES)
def test_token_by_token_equals_all_at_once(kind):
    layer = cephalo.MultiHeadAttention(8, 8, 16, 0.0, 2, seed=1).prepare()
    x = normal(2, 9, 8)
    cache = CACHES[kind]()
    parts = [layer(x[:, :4], cache=cache)] + [layer(x[:, i:i + 1], cache=cache) for i in range(4, 9)]
    assert np.abs(np.concatenate(parts, axis=1) - layer(x)).max() <= 1e-6
    assert cache.lengths == [9, 9] and cache.tokens == 9 and kind in repr(cache)
    cache.clear(0)
    assert cache.lengths == [0, 9]


def test_attend_reads_a_cache():
    cache = cephalo.KVCache.growing(1, 2, head_dim=4, dtype="bfloat16")
    k = normal(1, 2, 6, 4)
    cache.append(k, k)
    q = normal(1, 2, 6, 4, seed=1)
    context = cephalo.attend(q, cache, mask=cephalo.causal())
    assert np.abs(context - cephalo.attend(q, k, k, cephalo.causal())).max() <= 2e-2
    with pytest.raises(TypeError, match="omit v"):
        cephalo.attend(q, cache, k)
    with pytest.raises(ValueError, match="KVCache"):
        cache.append(k[:, :1], k)
