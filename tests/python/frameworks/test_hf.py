"""Hugging Face models with attn_implementation="cephalo", compared with their own attention ("eager")."""

import copy
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from cephalo.torch import _doors, _hf_attention, _hf_mask, register_hf  # noqa: E402
from transformers import masking_utils  # noqa: E402

import hf_models  # noqa: E402
from hf_models import (  # noqa: E402
    DECODERS, FAMILIES, GENERATING, SIZES, WITH_TEXT, far, inputs, pair, real_logits, text)

REGISTRATION = register_hf()
STEPS = torch.Generator().manual_seed(7)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients_are_those_of_the_model(family):
    logits, gradients = hf_models.differences(family)
    assert logits <= 1e-5 and gradients <= 1e-4


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("family", WITH_TEXT)
def test_padding_changes_neither(family, padding):
    logits, gradients = hf_models.differences(family, padding)
    assert logits <= 1e-5 and gradients <= 1e-4


@pytest.mark.parametrize("how", [{}, {"num_beams": 3}, {"cache_implementation": "static"}],
                         ids=["greedy", "beam", "static cache"])
@pytest.mark.parametrize("family", GENERATING)
def test_the_same_text_is_generated(family, how):
    assert hf_models.generates_the_same(family, **how)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_come_with_output_attentions(family):
    assert hf_models.weights_difference(family) <= 1e-5


def test_weights_come_with_a_generated_text_and_leave_no_graph():
    eager, ours = pair("Llama")
    found, expected = (m.generate(**text("left"), max_new_tokens=4, min_new_tokens=4, do_sample=False,
                                  output_attentions=True, return_dict_in_generate=True) for m in (ours, eager))
    for ours_then, then in zip(found.attentions[1:], expected.attentions[1:], strict=True):
        for a, b in zip(ours_then, then, strict=True):
            assert far(a, b) <= 1e-5
    output = ours(**text(), output_attentions=True)
    assert output.logits.requires_grad and not output.attentions[0].requires_grad
    assert ours(**text()).attentions is None


# --- padding: the one thing that an implementation without masks loses without a word -----------------


@pytest.mark.parametrize("family", DECODERS)
def test_a_padded_sequence_is_what_it_is_without_padding(family):
    _, ours = pair(family)
    given = text("left")
    positions = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    alone = ours(input_ids=given["input_ids"][1:, 4:]).logits
    assert far(ours(**given, position_ids=positions).logits[1:, 4:], alone) <= 1e-5


def test_padding_that_no_mask_function_was_asked_about_is_an_error(monkeypatch):
    _, ours = pair("Llama")
    monkeypatch.delitem(masking_utils.AttentionMaskInterface._global_mapping, "cephalo")
    with pytest.raises(RuntimeError, match=r"padding would be ignored; call cephalo.torch.register_hf\(\)"):
        ours(**text("left"))


def test_a_mask_that_is_not_one_for_pairs_is_refused():
    q = torch.randn(2, 4, 5, 8)
    with pytest.raises(ValueError, match=r"attention_mask is \[2, 5\]; a tensor of \[batch, num_heads or 1"):
        _hf_attention.attention(torch.nn.Module(), q, q, q, torch.ones(2, 5, dtype=torch.bool))


def test_masks_of_ones_own_hide_or_add():
    eager, ours = pair("Llama")
    visible = (torch.rand(2, 1, 9, 9, generator=STEPS) < 0.5) | torch.eye(9, dtype=torch.bool)
    added = torch.zeros(2, 1, 9, 9).masked_fill(~visible, torch.finfo(torch.float32).min)
    ids = text()["input_ids"]
    expected = eager(input_ids=ids, attention_mask=added).logits
    assert far(ours(input_ids=ids, attention_mask=added).logits, expected) <= 1e-5
    assert far(ours(input_ids=ids, attention_mask=visible).logits, expected) <= 1e-5


# --- masks as rules -------------------------------------------------------------------------------------

FUNCTIONS = {
    "causal": (masking_utils.causal_mask_function, {}),
    "window": (masking_utils.sliding_window_causal_mask_function(3), {"local_size": 3}),
    "everything": (masking_utils.bidirectional_mask_function, {"allow_is_bidirectional_skip": True}),
    "both ways": (masking_utils.sliding_window_bidirectional_mask_function(2),
                  {"allow_is_bidirectional_skip": True, "local_size": 2}),
    "chunks": (masking_utils.chunked_causal_mask_function(3, torch.zeros(2, dtype=int)), {"local_size": 3}),
}
PLACES = [(6, 6, 0, 0), (3, 8, 5, 0), (1, 8, 7, 0), (1, 3, 7, 5), (4, 6, 6, 4), (4, 9, 0, 0)]
REAL = {"none": None, "all": torch.ones(2, 12, dtype=torch.bool),
        "left": torch.arange(12) >= torch.tensor([[0], [3]]), "right": torch.arange(12) < torch.tensor([[12], [7]]),
        "holes": torch.arange(12) % torch.tensor([[13], [2]]) != 1}


def visible_pairs(attention_mask, q_tokens, kv_tokens, is_causal):
    """What the attention function lets through, as weights that are not 0: [2, 1, q_tokens, kv_tokens]"""
    module = torch.nn.Module()
    module.is_causal = is_causal
    weights = _hf_attention.attention(module, torch.zeros(2, 1, q_tokens, 4), torch.zeros(2, 1, kv_tokens, 4),
                                      torch.zeros(2, 1, kv_tokens, 4), attention_mask, output_attentions=True)[1]
    return weights > 0


@pytest.mark.parametrize("real", REAL)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_rule_says_what_the_stored_mask_says(name, place, real):
    function, more = FUNCTIONS[name]
    q_tokens, kv_tokens, q_offset, kv_offset = place
    given = dict(batch_size=2, q_length=q_tokens, kv_length=kv_tokens, q_offset=q_offset, kv_offset=kv_offset,
                 mask_function=function, attention_mask=REAL[real])
    is_causal = "allow_is_bidirectional_skip" not in more
    stored = masking_utils.sdpa_mask(**given, allow_is_causal_skip=False).expand(2, 1, q_tokens, kv_tokens)
    rule = _hf_mask.mask(**given, allow_is_causal_skip=is_causal, **more)
    assert rule is None or rule.shape == stored.shape
    assert torch.equal(visible_pairs(rule, q_tokens, kv_tokens, is_causal), stored)
    assert rule is None or torch.equal(rule & True, stored)


@pytest.mark.parametrize("name, padding, expected", [
    ("causal", "none", "positions(top_left, 0) & window(unlimited, 0)"),
    ("everything", "all", None),
    ("causal", "right", "positions(top_left, 0) & window(unlimited, 0) & lengths([2])"),
    ("causal", "left", "positions(top_left, 0) & window(unlimited, 0) & keep([2, 1, 1, 12])"),
    ("window", "none", "positions(top_left, 0) & window(2, 0)"),
    ("everything", "right", "lengths([2])"),
    ("both ways", "none", "positions(top_left, 0) & window(2, 2)"),
])
def test_no_mask_is_stored_where_a_rule_says_it(monkeypatch, name, padding, expected):
    monkeypatch.setattr(masking_utils, "sdpa_mask", None)
    function, more = FUNCTIONS[name]
    rule = _hf_mask.mask(batch_size=2, q_length=12, kv_length=12, mask_function=function,
                         attention_mask=REAL[padding], **more)
    if expected is None:
        assert rule is None
    else:
        assert repr(rule) == f"RuleMask([2, 1, 12, 12], {expected})"


@pytest.mark.parametrize("family, padding", [("Llama", "right"), ("Mistral", "none"), ("Mistral", "left"),
                                             ("Gemma 2", "left"), ("BERT", "right"), ("T5", "right")])
def test_models_store_no_mask(monkeypatch, family, padding):
    eager, ours = pair(family)
    given = inputs(family, padding)
    expected = real_logits(eager(**given), given)
    monkeypatch.setattr(masking_utils, "sdpa_mask", None)
    assert far(real_logits(ours(**given), given), expected) <= 1e-5


def rule_mask():
    return _hf_mask.mask(batch_size=2, q_length=6, kv_length=6, mask_function=FUNCTIONS["window"][0], local_size=3)


def test_a_rule_is_a_tensor_of_bools_for_everybody_else():
    stored = masking_utils.sdpa_mask(batch_size=2, q_length=6, kv_length=6, mask_function=FUNCTIONS["window"][0],
                                     allow_is_causal_skip=False)
    assert rule_mask().dtype == torch.bool and rule_mask().dim() == 4
    assert torch.equal(rule_mask()[:, :, 2:, :5], stored[:, :, 2:, :5])
    assert torch.equal(torch.where(rule_mask(), 0.0, -1.0), torch.where(stored, 0.0, -1.0))
    for as_numbers in (lambda: torch.zeros(2, 1, 6, 6) + rule_mask(), lambda: rule_mask().float()):
        with pytest.raises(ValueError, match="a module of this model adds masks to scores by itself"):
            as_numbers()
    assert type(copy.deepcopy(rule_mask())) is torch.Tensor and torch.equal(copy.deepcopy(rule_mask()), stored)


def test_what_is_written_to_a_rule_counts():
    mask = rule_mask()
    mask[:, :, :, 0] = True
    expected = rule_mask() | (torch.arange(6) == 0)
    assert torch.equal(visible_pairs(mask, 6, 6, True), expected)


def test_tokens_in_pieces_give_the_logits_of_the_whole():
    for family in ("Llama", "Mistral"):
        _, ours = pair(family)
        given = text("left")
        whole = ours(**given).logits
        cache = transformers.DynamicCache(config=ours.config)
        for begin, end in ((0, 4), (4, 7), (7, 8), (8, 9)):
            piece = ours(input_ids=given["input_ids"][:, begin:end], attention_mask=given["attention_mask"][:, :end],
                         past_key_values=cache, position_ids=torch.arange(begin, end)[None]).logits
            assert far(piece, whole[:, begin:end]) <= 1e-5, (family, begin)


def test_packed_sequences_do_not_see_each_other():
    eager, ours = pair("Llama")
    ids, positions = text()["input_ids"], torch.tensor([[0, 1, 2, 3, 0, 1, 0, 1, 2]]).expand(2, -1)
    found, expected = (m(input_ids=ids, position_ids=positions, use_cache=False).logits for m in (ours, eager))
    assert far(found, expected) <= 1e-5


# --- how it is computed ---------------------------------------------------------------------------------


def test_heads_that_share_keys_are_not_repeated(monkeypatch):
    seen = []

    def context(q, k, v, rule, tensors):
        seen.append((q.shape[1], k.shape[1], v.shape[1]))
        return _doors_context(q, k, v, rule, tensors)

    _doors_context = _doors.context
    monkeypatch.setattr(_doors, "context", context)
    _, ours = pair("Llama")
    ours(**text("left"))
    assert seen == [(4, 2, 2)] * 2


def test_dropout_is_for_training_and_follows_the_seed():
    torch.manual_seed(0)
    model = hf_models._gpt2(attn_pdrop=0.5)
    model.set_attn_implementation("cephalo")

    def logits(seed):
        torch.manual_seed(seed)
        return model(**text()).logits

    model.train()
    assert torch.equal(logits(1), logits(1)) and far(logits(1), logits(2)) > 1e-2
    trained = model(**text()).logits
    trained.sum().backward()
    assert model.transformer.h[0].attn.c_attn.weight.grad.isfinite().all()
    model.eval()
    assert torch.equal(logits(1), logits(2))


def test_dropout_leaves_the_mean_where_it_was():
    q, k, v = (torch.randn(1, 2, 6, 8, generator=STEPS) for _ in range(3))
    module = torch.nn.Module()
    exact = _hf_attention.attention(module, q, k, v, None)[0]
    torch.manual_seed(0)
    mean = sum(_hf_attention.attention(module, q, k, v, None, dropout=0.3)[0] for _ in range(3000)) / 3000
    assert far(mean, exact) < 0.1


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_gives_the_same_gradients(use_reentrant):
    eager, ours = pair("Mistral")
    given = inputs("Mistral", "left")
    _, expected = hf_models.logits_and_gradients(eager, given)
    ours.train()
    ours.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    _, found = hf_models.logits_and_gradients(ours, given)
    assert all(far(found[name], g) <= 1e-4 * max(1.0, g.abs().max()) for name, g in expected.items())


def test_gradients_of_each_sequence_by_vmap():
    eager, ours = pair("Mistral")
    parameters = {name: p.detach() for name, p in ours.named_parameters()}

    def gradient(model, ids):
        def loss(parameters):
            given = {"input_ids": ids[None], "use_cache": False}
            return torch.func.functional_call(model, parameters, (), given).logits.square().sum()

        return torch.func.grad(loss)(parameters)

    ids = text()["input_ids"]
    found = torch.vmap(lambda one: gradient(ours, one))(ids)
    for n, one in enumerate(ids):
        for name, g in gradient(eager, one).items():
            assert far(found[name][n], g) <= 1e-4 * max(1.0, g.abs().max())


@pytest.mark.parametrize("family", ["Llama", "T5"])
def test_compiled_as_one_graph(family):
    eager, ours = pair(family)
    given = inputs(family, "left")
    logits, gradients = hf_models.logits_and_gradients(torch.compile(ours, fullgraph=True, backend="aot_eager"), given)
    expected, wanted = hf_models.logits_and_gradients(eager, given)
    assert far(logits, expected) <= 1e-5
    for name, g in wanted.items():
        assert far(gradients[f"_orig_mod.{name}"], g) <= 1e-4 * max(1.0, g.abs().max())


def test_weights_come_out_of_a_graph():
    """Without fullgraph: transformers takes a lock when it installs its hooks."""
    eager, ours = pair("Llama")
    found = torch.compile(ours, backend="aot_eager")(**text(), output_attentions=True)
    expected = eager(**text(), output_attentions=True)
    assert far(found.attentions[1], expected.attentions[1]) <= 1e-5 and far(found.logits, expected.logits) <= 1e-5


def test_weights_are_mapped():
    q = torch.randn(3, 1, 2, 5, 4, generator=STEPS)

    def weights(q):
        return _hf_attention.attention(torch.nn.Module(), q, q, q, None, output_attentions=True)[1]

    assert far(torch.vmap(weights)(q), torch.stack([weights(one) for one in q])) == 0


def test_exported():
    eager, ours = pair("Llama")
    given = text("left")
    program = torch.export.export(ours, (), {**given, "use_cache": False})
    assert far(program.module()(**given, use_cache=False).logits[given["attention_mask"] == 1],
               real_logits(eager(**given), given)) <= 1e-5


def test_autocast_brings_types_together():
    """Under autocast rotary positions leave q and k in float32, where v is in bfloat16."""
    q, k, v = (torch.randn(2, 2, 6, 8, generator=STEPS) for _ in range(3))
    bias = torch.randn(1, 2, 6, 6, generator=STEPS)
    exact = _hf_attention.attention(torch.nn.Module(), q, k, v, None, position_bias=bias)[0]
    with torch.autocast("cpu", torch.bfloat16):
        found = _hf_attention.attention(torch.nn.Module(), q, k, v.bfloat16(), None, position_bias=bias)[0]
    assert found.dtype == torch.bfloat16 and far(found, exact) <= 3e-2
    with pytest.raises(TypeError, match="k is float32 but v is bfloat16"):
        _hf_attention.attention(torch.nn.Module(), q, k, v.bfloat16(), None)


# --- what is refused ------------------------------------------------------------------------------------


def test_what_cephalo_does_not_know_is_refused_by_name():
    config = transformers.GptOssConfig(**SIZES, num_key_value_heads=2, head_dim=8, num_local_experts=2,
                                       num_experts_per_tok=1)
    sinks = transformers.GptOssForCausalLM(config).eval()
    sinks.set_attn_implementation("cephalo")
    with pytest.raises(ValueError, match=r"the model passes s_aux \(attention sinks\), which cephalo does not know"):
        sinks(**text())
    found = REGISTRATION.supports(sinks)
    assert not found and "gpt_oss passes s_aux (attention sinks; GptOssAttention)" in found.reason
    q = torch.randn(1, 2, 3, 4)
    for name, value in {"temperature": 2.0, "cu_seq_lens_q": torch.tensor([0, 2, 3]), "cache": object()}.items():
        with pytest.raises(ValueError, match=f"the model passes {name}"):
            _hf_attention.attention(torch.nn.Module(), q, q, q, None, **{name: value})
        _hf_attention.attention(torch.nn.Module(), q, q, q, None, **{name: None})


@pytest.mark.parametrize("family", FAMILIES)
def test_families_that_ask_are_supported(family):
    found = REGISTRATION.supports(FAMILIES[family]())
    assert found and str(found).startswith("yes: ") and "asks transformers' attention interface" in found.reason


SMALL = dict(vocab_size=61, hidden_size=32, n_layer=1, n_head=2)
OTHERS = {
    "falcon": lambda: transformers.FalconForCausalLM(transformers.FalconConfig(
        vocab_size=61, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)),
    "bloom": lambda: transformers.BloomForCausalLM(transformers.BloomConfig(**SMALL)),
    "mpt": lambda: transformers.MptForCausalLM(transformers.MptConfig(vocab_size=61, d_model=32, n_layers=1,
                                                                      n_heads=2)),
    "gptj": lambda: transformers.GPTJForCausalLM(transformers.GPTJConfig(
        vocab_size=61, n_embd=32, n_layer=1, n_head=2, rotary_dim=8)),
    "codegen": lambda: transformers.CodeGenForCausalLM(transformers.CodeGenConfig(
        vocab_size=61, n_embd=32, n_layer=1, n_head=4, rotary_dim=4)),
}


@pytest.mark.parametrize("family", OTHERS)
def test_families_that_do_not_ask_are_not(family):
    """And say so when they are run: their own attention would misread the masks."""
    model = OTHERS[family]().eval()
    model.config._attn_implementation = "cephalo"  # as from_pretrained does; set_attn_implementation declines
    with pytest.raises(ValueError, match=f"{family} computes attention by itself"):
        model(**text())
    found = REGISTRATION.supports(model)
    assert not found
    assert found.reason.startswith(f"{family} does not ask transformers' attention interface: ")
    assert found.reason.endswith("Attention computes attention by itself")


def test_a_family_that_asks_here_and_not_there_does_not_misread_masks():
    config = transformers.BigBirdPegasusConfig(vocab_size=61, d_model=32, **hf_models.BOTH_SIDES, **hf_models.SPECIAL)
    model = transformers.BigBirdPegasusForConditionalGeneration(config).eval()
    model.set_attn_implementation("cephalo")
    assert "; without it: " in REGISTRATION.supports(model).reason
    with pytest.raises(ValueError, match="a module of this model adds masks to scores by itself"):
        model(**text("left"), decoder_input_ids=text()["input_ids"])


def test_a_model_without_attention_says_so():
    found = REGISTRATION.supports(torch.nn.Linear(2, 2))
    assert str(found) == "no: Linear does not ask transformers' attention interface: it has no attention"


def test_registering_twice_changes_nothing():
    again = register_hf()
    assert again.name == "cephalo"
    assert hf_models.generates_the_same("GPT-2")


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_transformers_is_not_imported_before_it_is_asked_for():
    found = run_python("import sys, cephalo.torch; cephalo.torch.register_hf; print('transformers' in sys.modules)")
    assert found.stdout.strip() == "False", found.stderr


def test_without_transformers_the_error_says_what_to_install():
    found = run_python("import sys; sys.modules['transformers'] = None; import cephalo.torch as t; t.register_hf()")
    assert "ImportError: register_hf: transformers with an attention interface is not installed" in found.stderr
    assert "pip install --upgrade transformers" in found.stderr
