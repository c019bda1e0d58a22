"""cephalo.quiz(): ten questions on attention, answered by computing."""

from . import _cephalo
from ._html import STYLE, escape, save_page

_LETTERS = "abcd"


class Quiz:
    """Ten questions; a sequence of QuizQuestions, which shows itself as HTML or as text.

    In a notebook a click on a choice shows whether it is right, and the numbers. answer(number, letter) says the same
    and counts, ask() asks one after the other. What is right is computed when the quiz is made.
    """

    def __init__(self, seed):
        self.seed = seed
        self.questions = _cephalo._quiz(seed)
        self.replies = {}  # number -> QuizReply, of those answered

    def __len__(self):
        return len(self.questions)

    def __getitem__(self, index):
        return self.questions[index]

    def answer(self, number, letter):
        """number: from 1, letter: of a choice -> QuizReply; a second answer replaces the first."""
        if not 1 <= number <= len(self):
            raise IndexError(f"quiz: there is no question {number}; there are 1 to {len(self)}")
        self.replies[number] = self.questions[number - 1].answer(letter)
        return self.replies[number]

    @property
    def score(self):
        """How many answers were right so far."""
        return sum(reply.right for reply in self.replies.values())

    def ask(self, read=input):
        """Asks for a letter, question by question; an empty line ends it. -> the score"""
        for number, question in enumerate(self.questions, 1):
            print(f"\n{number} of {len(self)}, {question.topic}: {question!r}")
            while letter := read("> ").strip():
                try:
                    print(self.answer(number, letter))
                    break
                except ValueError as error:
                    print(error)
            if not letter:
                break
        print(f"\n{self.score} of {len(self.replies)} right")
        return self.score

    def save(self, path):
        """Writes what a notebook shows as one HTML page that needs nothing else."""
        save_page(path, "Attention: a quiz", self._repr_html_())

    def __repr__(self):
        return "\n\n".join(f"{number} of {len(self)}, {question.topic}: {question!r}"
                           for number, question in enumerate(self.questions, 1))

    def _repr_html_(self):
        parts = [f'<div style="{STYLE}"><b>Ten questions on attention</b>, seed {self.seed}: click on an answer. '
                 "What is right was computed just now."]
        for number, question in enumerate(self.questions, 1):
            text, *drawing = question.text.split("\n", 1)
            parts.append(f'<div style="margin:12px 0 2px"><b>{number}</b> {escape(text)}</div>')
            parts += [f'<pre style="margin:2px 20px">{escape(lines)}</pre>' for lines in drawing]
            parts += [_choice(question, letter, choice) for letter, choice in zip(_LETTERS, question.choices)]
        return "".join(parts) + "</div>"


def _choice(question, letter, text):
    """What is said about a choice, behind it: no script is needed to open it."""
    reply = question.answer(letter)
    colour = "#1a7f37" if reply.right else "#b35900"
    said = escape(reply.text).replace("\n", "<br>")
    return (f'<details style="margin:1px 20px"><summary>{letter}) {escape(text)}</summary>'
            f'<div style="margin:2px 18px;color:{colour};white-space:pre-wrap">{said}</div></details>')


def quiz(seed=123):
    """Ten questions on shapes, masks, the scale and more -> Quiz

    seed: of the sizes, the numbers and the order of the choices.
    """
    return Quiz(seed)
