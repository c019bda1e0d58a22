"""Small random models of Hugging Face transformers, and how far cephalo is from their own attention.

Run as a program, this prints the table of all families:
    PYTHONPATH=build/release/python .venv/bin/python tests/python/frameworks/hf_models.py
"""

import copy

import torch
import transformers

VOCABULARY, TOKENS, PAD = 61, 9, 0
SPECIAL = dict(pad_token_id=PAD, bos_token_id=1, eos_token_id=2)
SIZES = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=64, initializer_range=0.2, **SPECIAL)
GROUPED = dict(num_key_value_heads=2, head_dim=8)
BOTH_SIDES = dict(encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                  encoder_ffn_dim=48, decoder_ffn_dim=48)
NO_DROPOUT = dict(attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)


def _gpt2(**more):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.2, **SPECIAL,
        **(NO_DROPOUT | more)))


def _llama(**more):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **GROUPED, **more))


def _mistral():
    return transformers.MistralForCausalLM(transformers.MistralConfig(**SIZES, **GROUPED, sliding_window=4))


def _qwen3():
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES, **GROUPED))


def _gemma2():
    """Its softcap is small enough to bend every score."""
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
        **SIZES, **GROUPED, sliding_window=4, attn_logit_softcapping=2.0, query_pre_attn_scalar=8))


def _neox():
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**SIZES))


def _bert():
    return transformers.BertForMaskedLM(transformers.BertConfig(**SIZES))


def _bart():
    return transformers.BartForConditionalGeneration(transformers.BartConfig(
        vocab_size=VOCABULARY, d_model=32, max_position_embeddings=64, init_std=0.2, decoder_start_token_id=2,
        forced_eos_token_id=None, **BOTH_SIDES, **SPECIAL))


def _t5():
    return transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        decoder_start_token_id=PAD, **SPECIAL))


def _vit():
    return transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=4,
        num_labels=5, initializer_range=0.2))


FAMILIES = {"GPT-2": _gpt2, "Llama": _llama, "Mistral": _mistral, "Qwen3": _qwen3, "Gemma 2": _gemma2,
            "GPT-NeoX": _neox, "BERT": _bert, "BART": _bart, "T5": _t5, "ViT": _vit}
DECODERS = ["GPT-2", "Llama", "Mistral", "Qwen3", "Gemma 2", "GPT-NeoX"]
WITH_TEXT = [*DECODERS, "BERT", "BART", "T5"]
GENERATING = [*DECODERS, "BART", "T5"]


def pair(family):
    """The same parameters twice: with transformers' own attention, and with cephalo's."""
    torch.manual_seed(0)
    eager = FAMILIES[family]().eval()
    eager.set_attn_implementation("eager")
    ours = copy.deepcopy(eager)
    ours.set_attn_implementation("cephalo")
    return eager, ours


def text(padding="none", seed=1):
    """input_ids, attention_mask; the second of two sequences is shorter and padded on that side"""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, VOCABULARY, (2, TOKENS), generator=generator)
    real = torch.ones_like(ids)
    if padding == "left":
        real[1, :4] = 0
    elif padding == "right":
        real[1, -4:] = 0
    return {"input_ids": ids.where(real == 1, PAD), "attention_mask": real}


def inputs(family, padding="none"):
    if family == "ViT":
        return {"pixel_values": torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))}
    given = text(padding)
    if family in ("BART", "T5"):
        given |= {f"decoder_{name}": value for name, value in text(padding, seed=2).items()}
    return given


def real_logits(output, given):
    """Those of real tokens. A padded query on the left sees nothing: cephalo's context there is 0, transformers' own
    is the mean of all values, and neither reaches a real token."""
    real = given.get("decoder_attention_mask", given.get("attention_mask"))
    return output.logits if real is None else output.logits[real == 1]


def logits_and_gradients(model, given):
    """-> logits of real tokens, {name: gradient} of a random combination of them"""
    model.zero_grad()
    logits = real_logits(model(**given), given)
    logits.backward(torch.randn(logits.shape, generator=torch.Generator().manual_seed(3)))
    return logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def far(a, b):
    return (a - b).abs().max().item()


def differences(family, padding="none"):
    """-> of logits; of gradients, relative to the largest of each parameter"""
    eager, ours = pair(family)
    given = inputs(family, padding)
    (logits, gradients), (expected, wanted) = (logits_and_gradients(m, given) for m in (ours, eager))
    assert gradients.keys() == wanted.keys()
    # Of a key's bias, which softmax does not see, the gradient is 0 and all that is left is rounding.
    floor = 1e-2 * max(g.abs().max().item() for g in wanted.values())
    return far(logits, expected), max(far(gradients[name], g) / max(g.abs().max().item(), floor)
                                      for name, g in wanted.items())


def weights_difference(family):
    eager, ours = pair(family)
    given = inputs(family, "right")
    with torch.no_grad():
        found, expected = (m(**given, output_attentions=True) for m in (ours, eager))
    names = [name for name in expected if name.endswith("attentions") and expected[name]]
    assert names
    worst = 0.0
    for name in names:
        assert len(found[name]) == len(expected[name]) == 2, name
        rows = given.get("attention_mask" if name == "encoder_attentions" else "decoder_attention_mask",
                         given.get("attention_mask"))
        for a, b in zip(found[name], expected[name]):
            assert a.shape == b.shape
            visible = slice(None) if rows is None else (rows == 1)[:, None, :, None].expand(a.shape)
            worst = max(worst, far(a[visible], b[visible]))
    return worst


def generated(model, family, **how):
    """No token twice: a model that likes one above all shows nothing of what it thinks of others."""
    given = text("right" if family in ("BART", "T5") else "left")
    return model.generate(**given, max_new_tokens=12, min_new_tokens=12, do_sample=False, no_repeat_ngram_size=1, **how)


def generates_the_same(family, **how):
    eager, ours = pair(family)
    return torch.equal(generated(ours, family, **how), generated(eager, family, **how))


def _row(family):
    logits, gradients = differences(family)
    row = [f"{logits:.0e}", f"{gradients:.0e}"]
    for padding in ("left", "right"):
        row.append(" / ".join(f"{d:.0e}" for d in differences(family, padding)) if family in WITH_TEXT else "")
    for how in ({}, {"num_beams": 3}, {"cache_implementation": "static"}):
        equal = family in GENERATING and generates_the_same(family, **how)
        row.append(("equal" if equal else "DIFFERENT") if family in GENERATING else "")
    return [*row, f"{weights_difference(family):.0e}"]


def main():
    import cephalo.torch
    cephalo.torch.register_hf()
    print("| family | logits | gradients | left padding | right padding | greedy | beam | static cache | weights |")
    print("|---|---|---|---|---|---|---|---|---|")
    for family in FAMILIES:
        print("|", " | ".join([family, *_row(family)]), "|", flush=True)


if __name__ == "__main__":
    main()
