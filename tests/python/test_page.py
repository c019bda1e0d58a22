"""cephalo.page: one file of one text, and its frame in a notebook."""

import html
import json
import re

import cephalo
import pytest

pytestmark = pytest.mark.skipif(not cephalo.has_builtin_model(), reason="built without a model")

TEXT = "The cat sat on the mat. " * 12


def data_of(page):
    return json.loads(re.search(r'id="page-data">(.*?)</script>', page).group(1))


def test_a_page_is_written_and_shown():
    page = cephalo.page("The cat sat")
    data = data_of(page.html)
    assert data["text"] == "The cat sat" and page.tokens == 4
    assert [token["piece"] for token in data["recorded"]["tokens"]][1:] == ["The", "Ġcat", "Ġsat"]
    assert repr(page).startswith("<cephalo.Page of 4 tokens, ")
    frame = page._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts allow-downloads allow-modals" ')
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', frame).group(1)) == page.html


def test_64_tokens_take_less_than_2_mb():
    page = cephalo.page(" cat" * 63)
    assert page.tokens == 64
    assert len(page._repr_html_()) <= 2_000_000


def test_it_is_the_page_of_the_program(tmp_path):
    path = tmp_path / "page.html"
    page = cephalo.page("The cat sat", path=path)
    assert path.read_text(encoding="utf-8") == page.html
    report = cephalo.look("The cat sat").report
    assert report.page() == page.html
    heads = data_of(page.html)["recorded"]["heads"]
    assert [head["metrics"] for head in heads] == [head["metrics"] for head in json.loads(report.json())["heads"]]


def test_a_model_of_your_own_and_a_limit():
    model = cephalo.builtin_model()
    whole = cephalo.page(TEXT, model)
    some = cephalo.page(TEXT, model, most_bytes=len(whole.html) - 100_000, heads=[(3, 1)])
    assert data_of(whole.html)["recorded"]["full"] is None
    assert data_of(some.html)["recorded"]["full"] == [25]
    assert len(some.html) < len(whole.html)
    with pytest.raises(ValueError, match="raise most_bytes"):
        cephalo.page(TEXT, model, most_bytes=100_000)
    with pytest.raises(ValueError, match="there is no layer 9 head 0"):
        cephalo.page(TEXT, model, heads=[(9, 0)])


def test_text_is_inert_and_other_things_are_refused():
    page = cephalo.page("</script><script>alert(1)</script>")
    assert "<script>alert" not in page.html and "<script>alert" not in page._repr_html_()
    with pytest.raises(TypeError, match="page: text must be str or bytes"):
        cephalo.page([1, 2, 3])


def test_a_model_that_has_changed_is_refused():
    model = cephalo.builtin_model()
    report = cephalo.look("The cat", model).report
    name = next(iter(model.parameters))
    model.update(name, model.parameters[name])
    with pytest.raises(ValueError, match="has changed"):
        report.page()


def test_a_large_page_is_not_kept_in_a_notebook():
    assert "save(path)" in cephalo.Page("text", "x" * 5_000_000, 9)._repr_html_()
