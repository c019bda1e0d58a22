"""What heads look at: recordings, metrics, the probe, labels, and cephalo.look(text)."""

import json

import numpy as np
import pages
import pytest

import cephalo
from test_gpt import ids, small_bpe, small_gpt, text_gpt

SIZES = dict(vocab_size=60, context_length=64)


def test_a_recording_has_the_weights_of_every_head():
    gpt, tokens = small_gpt(), ids(7)
    recording = cephalo.Recording(gpt, tokens)
    assert recording.ids == tokens.tolist() and recording.tokens == 7
    weights = recording.weights(1)
    assert weights.shape == (2, 7, 7) and np.abs(weights.sum(-1) - 1).max() <= 1e-5
    assert not np.triu(weights, 1).any()
    assert np.array_equal(recording.weights(1, heads=[1], rows=[3, 6]), weights[1:, [3, 6]])
    assert np.abs(recording.pooled(1, 0, 7).largest - weights[0]).max() <= 1e-6
    assert recording.row_sums(0).shape == (2, 7, len(cephalo.ROW_SUMS))
    assert recording.value_norms(0).shape == (2, 7)
    likeliest = recording.predictions(3)
    logits = gpt(tokens)[-1].astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum()
    assert [id for id, _ in likeliest] == np.argsort(-shares, kind="stable")[:3].tolist()
    assert likeliest[0][1] == pytest.approx(shares.max(), rel=1e-5)
    with pytest.raises(ValueError, match="layer 2"):
        recording.weights(2)


def test_a_recording_outlives_what_happens_to_its_model():
    gpt = small_gpt()
    recording = cephalo.Recording(gpt, ids(5))
    before = recording.weights(0)
    gpt.update("transformer.ln_f.bias", np.ones(16, np.float32))
    assert np.array_equal(recording.weights(0), before)
    with pytest.raises(ValueError, match="changed since .version 0 then, 1 now"):
        recording.value_norms(0)
    del gpt
    assert recording.model.version == 1


def sums_of(weights, tokens):
    """row_sums of a head with these weights, by hand for the columns that are asked here."""
    rows = np.zeros((len(weights), len(cephalo.ROW_SUMS)))
    column = {name: k for k, name in enumerate(cephalo.ROW_SUMS)}
    for i, row in enumerate(weights):
        seen = row[:i + 1]
        rows[i, column["entropy"]] = -(seen[seen > 0] * np.log(seen[seen > 0])).sum()
        rows[i, column["largest"]] = seen.max()
        rows[i, column["distance"]] = (seen * (i - np.arange(i + 1))).sum()
        rows[i, column["previous"]] = seen[i - 1] if i else 0
        rows[i, column["first"]], rows[i, column["current"]] = seen[0], seen[i]
        rows[i, column["visible"]] = i + 1
    return rows


def test_patterns_get_their_labels():
    previous = np.eye(6, k=-1)
    previous[0, 0] = 1
    metrics = cephalo.head_metrics(sums_of(previous, range(6)))
    assert float(metrics.previous) == 1 and metrics.previous.rows == 5 and metrics.distance == 1
    assert cephalo.head_labels(metrics) == [("previous", 1.0)]
    uniform = np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]
    metrics = cephalo.head_metrics(sums_of(uniform, range(6)))
    assert metrics.entropy.value == pytest.approx(1) and "entropy=1.000" in repr(metrics)
    assert [label for label, _ in cephalo.head_labels(metrics)] == ["diffuse"]


def test_every_head_of_a_model_is_reported():
    gpt = small_gpt(**SIZES)
    recording = cephalo.Recording(gpt, np.arange(12))
    assert cephalo.longest_probe(gpt) == 31 and cephalo.longest_probe(small_gpt()) == 0
    probe = cephalo.probe_heads(gpt, length=25)
    assert len(probe) == 2 and len(probe[0]) == 2 and 0 <= probe[1][1].induction.value <= 1
    reports = cephalo.report_heads(recording, probe)
    assert [(r.layer, r.head) for r in reports] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    by_layer = cephalo.head_metrics(recording, 1)
    assert reports[2].metrics.previous.value == by_layer[0].previous.value
    assert reports[2].labels == cephalo.head_labels(by_layer[0], probe[1][0])
    assert reports[0].probe.duplicate.rows > 0 and cephalo.report_heads(recording)[0].probe is None
    with pytest.raises(ValueError, match="25"):
        cephalo.probe_heads(gpt, length=3)
    with pytest.raises(ValueError, match="other layers or heads"):
        cephalo.report_heads(recording, probe[:1])


def test_the_probe_repeats_different_tokens():
    drawn = cephalo.probe_ids(60, cephalo.TorchGenerator(1), 25, bos_token_id=7)
    assert drawn[0] == 7 and drawn[1:26] == drawn[26:] and len(set(drawn)) == 26


def test_links_shares_and_divergences():
    gpt = small_gpt()
    recording = cephalo.Recording(gpt, ids(8))
    weights = recording.weights(0)
    query, key, weight = cephalo.strongest_links(recording, 0, 1, 2)[0]
    rows = weights[1][1:].max(axis=1)
    assert query == 1 + rows.argmax() and key == weights[1][query].argmax() and weight == rows.max()
    moved = cephalo.value_weighted(weights, recording.value_norms(0))
    assert np.abs(moved.sum(-1) - 1).max() <= 1e-6
    assert cephalo.first_token_share(recording, 0) == pytest.approx(moved[:, 1:, 0].mean(axis=1))
    assert cephalo.head_divergence(recording, (0, 1), recording, (0, 1)) == 0
    assert 0 < cephalo.head_divergence(recording, (0, 0), recording, (1, 1)) < np.log(2)
    assert cephalo.jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(np.log(2))


def looked(text="the cat sat on the mat", **options):
    return cephalo.look(text, text_gpt(), **options)


def test_a_text_is_looked_at():
    look = looked(top=3)
    assert look.tokens[0] == "<|endoftext|>" and "".join(look.tokens[1:]) == "thecatsatonthemat"
    assert [(h.layer, h.head) for h in look.heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(len(h.links) == 3 for h in look.heads) and len(look.predictions) == 3
    text = repr(look)
    assert text.startswith('"the cat sat on the mat"') and "layer 1 head 1" in text and "next: " in text
    assert looked(begin=False).tokens == look.tokens[1:]
    one = look.head(1, 0)
    assert np.array_equal(np.array(one.heads[0], float)[-1], look.recording.weights(1)[0][-1])
    assert one.heads[0][0][1] is None and "layer 1 head 0" in one._repr_html_()
    links = look.token(-1)
    assert len(links) == 4 and links[0][3] >= links[-1][3]
    assert look.picture().png()[:4] == look.picture(1, 1).png()[:4] == b"\x89PNG"
    with pytest.raises(ValueError, match="there is no layer 2 head 0"):
        look.head(2, 0)


def test_a_look_is_one_report():
    look = looked(top=2)
    report = json.loads(look.json([(1, 0)]))
    assert [token["id"] for token in report["tokens"]] == look.ids and report["begun"]
    assert [(h["layer"], h["head"]) for h in report["heads"]] == [(h.layer, h.head) for h in look.heads]
    assert [p["probability"] for p in report["predictions"]] == [share for _, share in look.predictions]
    weights = look.recording.weights(1)[0]
    assert report["heads"][2]["weights"][3] == pytest.approx(weights[3][:4].tolist())
    assert "weights" not in report["heads"][0]
    assert len(set(look.report.heads_to_show(3))) == 3 and look.report.tokens == look.tokens
    with pytest.raises(ValueError, match="there is no layer 9 head 0"):
        look.json([(9, 0)])


def test_a_token_is_looked_at_by_index_or_by_name():
    look = looked()
    last = look.token(-1)
    assert (last.index, last.name) == (len(look.tokens) - 1, look.tokens[-1]) and len(last) == 4
    assert list(last) == sorted(last, key=lambda link: -link.weight)
    for layer, head, key, weight in last:
        row = look.recording.weights(layer)[head][-1]
        assert key == row.argmax() and weight == row.max()
    name = look.tokens[1]
    places = [i for i, token in enumerate(look.tokens) if token == name]
    assert len(places) > 1
    named = look.token(name)
    assert named.index == look.token(" " + name).index == places[0] and named.others == places[1:]
    assert list(named) == list(look.token(np.int64(places[0])))


def test_a_token_shows_itself_as_text():
    look = cephalo.TokenLook(["<|endoftext|>", "The", "cat", "it", "it"], 3, [4],
                             [cephalo.TokenLink(0, 1, 2, 0.75), cephalo.TokenLink(1, 0, 1, 0.5)])
    assert repr(look) == ('token 3 "it" looks at\n'
                          "  layer 0 head 1  cat  0.75  (token 2)\n"
                          "  layer 1 head 0  The  0.50  (token 1)\n"
                          '"it" is also token 4')


@pytest.mark.parametrize("wanted, error, text", [
    ("dog", ValueError, "look: no token is 'dog'; they are <|endoftext"),
    (99, IndexError, "look: there is no token 99; the text has "),
    (1.5, TypeError, "look: a token is asked for by its index or its name, not by float"),
])
def test_a_token_that_is_not_there_is_named(wanted, error, text):
    with pytest.raises(error) as raised:
        looked().token(wanted)
    assert str(raised.value).startswith(text)


def test_a_text_that_is_too_long_is_named():
    gpt = text_gpt()
    most = gpt.context_length
    with pytest.raises(ValueError, match=rf"^Recording: the text has \d+ tokens, the model reads at most "
                                         rf"{most} at once \(context_length\)"):
        cephalo.look("the cat " * most, gpt)
    with pytest.raises(ValueError, match=rf"^Gpt: {most + 1} tokens exceed context_length \({most}\)$"):
        gpt([1] * (most + 1))


def test_its_page_stands_alone(tmp_path):
    look = looked("<i>cat</i>&\"dog")
    page = pages.self_contained(look._repr_html_())
    assert page.tags.count("svg") == 5  # the legend and four heads
    assert "i" not in page.tags and '<i>cat</i>&"dog' in page.texts
    look.save(tmp_path / "look.html")
    assert look._repr_html_() in (tmp_path / "look.html").read_text(encoding="utf-8")
    look.picture().save(tmp_path / "look.png")
    assert (tmp_path / "look.png").read_bytes() == look.picture().png()


def test_its_page_tells_hidden_from_0_and_names_the_tokens():
    look = looked()
    page = pages.self_contained(look._repr_html_())
    tokens = len(look.tokens)
    hidden = [path for name, path in page.attributes if name == "d" and path.startswith("M") and "l" in path]
    strokes = tokens * (tokens - 1) // 2
    assert [path.count("l") for path in hidden] == [3, *[strokes] * 4]  # the legend's, each head's
    filled = [path for name, path in page.attributes if name == "d" and "z" in path]
    assert sum(path.count("z") for path in filled) == 4 * (strokes + tokens)  # 0 has a colour too
    for name in set(look.tokens):
        shown = "<|endoftext…" if name == "<|endoftext|>" else name
        # The list of tokens, and both sides of four maps.
        assert page.texts.count(shown) - look.tokens.count(name) >= 8 * look.tokens.count(name), name
    assert "pooled" not in " ".join(page.texts)


def test_its_page_says_that_it_pools():
    bpe = small_bpe()
    model = small_gpt(vocab_size=bpe.vocab_size, tokenizer=bpe, context_length=64)
    look = cephalo.look("the cat sat on the mat " * 5, model)
    count = len(look.tokens)
    page = pages.self_contained(look._repr_html_())
    said = f"{count} × {count} tokens pooled into 24 × 24 cells, each the largest weight in it"
    assert count > 24 and any(said in text for text in page.texts)


def test_links_of_a_label_are_those_that_its_score_counts():
    look = looked("the cat the cat the")
    links = cephalo.strongest_links(look.recording, 0, 0, 100, label="induction")
    assert links and all(look.ids[key - 1] == look.ids[query] and key < query for query, key, _ in links)
    with pytest.raises(ValueError, match="there is no label 'inductive'"):
        cephalo.strongest_links(look.recording, 0, 0, label="inductive")


def test_models_come_from_folders_too(tmp_path):
    text_gpt().save(tmp_path / "model")
    look = cephalo.look("the cat", tmp_path / "model")
    assert look.model.name == str(tmp_path / "model") and look.ids == looked("the cat").ids
    with pytest.raises(ValueError, match="no tokenizer"):
        cephalo.look("the cat", small_gpt())
    with pytest.raises(TypeError, match="look: text must be str or bytes"):
        cephalo.look(3)


@pytest.mark.skipif(not cephalo.has_builtin_model(), reason="built without a model")
def test_the_built_in_model_is_there():
    gpt = cephalo.builtin_model()
    assert gpt.tokenizer.fingerprint == cephalo.builtin_tokenizer().fingerprint
    look = cephalo.look("The cat sat on the mat")
    assert look.model.name == gpt.name and len(look.heads) == gpt.num_layers * gpt.num_heads
    assert gpt.generate("The cat", 4).text
    labels = [dict(head.labels) for head in look.heads]
    assert max(found.get("previous", 0) for found in labels) >= 0.9
    assert max(found.get("induction", 0) for found in labels) >= 0.5
