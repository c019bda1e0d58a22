"""Phrases that read as translated from another language: the one list that keeps them out of documents,
docstrings and public headers (docs/english_test.py) and off the screen (messages_test.py)."""

import re

# What is wrong, a sentence that has it, and how to say it instead.
HABITS = [
    (r"\bhangs? on\b", "The ids hang on the machine.", "The ids depend on the machine."),
    (r"\b(?:is|are) told\b", "A full disk is told at once.", "A full disk is reported at once."),
    (r"\bof yours\b", "It calls a function of yours.", "It calls your function."),
    (r"(?<!there )\b(?:is|are|was|were) no\b(?! (?:longer|more|less|better|worse|fewer|match))",
     "A mask is no tensor.", "A mask is not a tensor; there is no tensor."),
    (r"\bbeside\b", "Errors beside what is allowed.",
     "Errors relative to what is allowed, next to it, or besides it."),
    (r"(?:^|[.,;:] |\band )who (?:links?|calls?|uses?|wants?|reads?)\b", "Who links it needs nothing.",
     "Programs that link it need nothing."),
    (r"\bgoes on\b|\b(?:go|went|going) on (?:with|from|where|after|as)\b", "It goes on with step 4.",
     "It continues with step 4."),
    (r"\bstands? (?:there|where|at|under|before|for itself)\b", "What stands there is compiled.",
     "What is there is compiled."),
    (r"\bwhere (?:it|they) lies?\b", "Arrays are read where they lie.", "Arrays are read in place."),
    (r"(?<!\bv )\balike\b", "It looks at all alike.", "It looks at everything equally; q, k and v alike."),
    (r"\b(?:can|cannot|could|may) be had\b", "Weights can be had afterwards.",
     "Weights are available afterwards."),
    (r"\banew\b", "Weights are computed anew.", "Weights are recomputed."),
    (r"\bin silence\b", "It never falls back in silence.", "It never falls back silently."),
    (r"\b(?:allows?|permits?|enables?) to\b", "It allows to see heads.", "It lets you see heads."),
    (r"\bsays? (?:it|them) (?:all )?so\b", "The plan says it so.", "The plan says so."),
    (r"(?:^|[.,;:] |\bor )say (?:(?:an?|the|of|which|what|how)\b|--)", "no size; say a number",
     "no size; pass a number"),
    (r"\bleave \S+ out\b(?! of)", "leave --mask out", "omit --mask"),
    (r"\bwas put before\b", "A token was put before the text.", "A token was prepended."),
    (r"\bbegins one\b", "It was put there: it begins one.", "It starts every text."),
    (r"\bnothing was saved there\b", "nothing was saved there yet: begins",
     "no checkpoint yet; starting from the beginning"),
    (r"\bto give\b", "this machine has 2 GiB to give", "only 2 GiB is available"),
    (r"\bmade so\b", "The model was made so.", "The model was trained this way."),
    (r"\bof no known\b", "Keys of no known name.", "Unknown keys."),
    (r"\bso many (?:of|tokens|sequences)\b", "At most so many of them.", "At most this many."),
    (r"\binformations\b|\badvices\b|\bsoftwares\b", "It prints informations.", "It prints information."),
]
PATTERNS = [(re.compile(wrong, re.IGNORECASE), instead) for wrong, _, instead in HABITS]


def bad_habits(text):
    """(match, what to say instead) for each of them in a text of one line."""
    for pattern, instead in PATTERNS:
        for match in pattern.finditer(text):
            yield match, instead
