"""cephalo.quiz: questions whose answers are computed, in a notebook and by input()."""

import re

import cephalo
import numpy as np
import pages
import pytest


@pytest.fixture
def quiz():
    return cephalo.quiz(7)


def right_letter(question):
    (letter,) = [letter for letter, _ in zip("abcd", question.choices) if question.answer(letter)]
    return letter


def test_ten_questions_and_one_right_answer_each(quiz):
    assert len(quiz) == 10
    for question in quiz:
        right_letter(question)
    assert repr(cephalo.quiz(7)) == repr(quiz) != repr(cephalo.quiz(8))


def test_numpy_finds_the_same_answers():
    """The shape of scores, by the sizes in the question; what a head without the scale does."""
    for seed in range(5):
        quiz = cephalo.quiz(seed)
        batch, tokens, heads, width = map(int, re.findall(r"\d+", quiz[1].text)[:4])
        q = np.zeros((batch, heads, tokens, width))
        shape = str((q @ q.swapaxes(2, 3)).shape)
        assert quiz[1].choices["abcd".index(right_letter(quiz[1]))] == shape
        tokens = int(re.search(r"reads (\d+)", quiz[3].text).group(1))
        pairs = int(np.tril(np.ones((tokens, tokens))).sum())
        assert quiz[3].choices["abcd".index(right_letter(quiz[3]))] == str(pairs)


def test_answers_are_counted_and_may_be_changed(quiz):
    right = right_letter(quiz[0])
    wrong = "a" if right != "a" else "b"
    reply = quiz.answer(1, wrong)
    assert not reply and reply.text.startswith("No. ") and f"Right is {right}), " in repr(reply)
    assert quiz.score == 0
    assert quiz.answer(1, right.upper()) and quiz.score == 1
    with pytest.raises(ValueError, match="'z' is not one of the letters a to d"):
        quiz.answer(1, "z")
    with pytest.raises(IndexError, match="there is no question 11; there are 1 to 10"):
        quiz.answer(11, "a")


def test_it_asks_one_after_the_other(quiz, capsys):
    answers = iter([right_letter(quiz[0]), "z", right_letter(quiz[1]), ""])
    assert quiz.ask(read=lambda prompt: next(answers)) == 2
    said = capsys.readouterr().out
    assert said.count("Right. ") == 2 and "'z' is not one of the letters" in said
    assert "2 of 2 right" in said and "4 of 10" not in said


def test_in_a_notebook_a_click_shows_the_reply(quiz, tmp_path):
    page = pages.self_contained(quiz._repr_html_())
    choices = sum(len(question.choices) for question in quiz)
    assert page.tags.count("details") == page.tags.count("summary") == choices
    said = "".join(page.texts)
    assert said.count("Right. ") == 10 and said.count("No. ") == choices - 10
    quiz.save(tmp_path / "quiz.html")
    assert "Attention: a quiz" in (tmp_path / "quiz.html").read_text(encoding="utf-8")
