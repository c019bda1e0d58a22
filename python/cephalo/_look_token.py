"""look(text).token(...): what one token looks at, head by head."""

import operator
from typing import NamedTuple

from ._html import short

_SHOWN = 12  # heads in the text form


class TokenLink(NamedTuple):
    """Where a token looks most in one head."""

    layer: int
    head: int
    key: int  # index of the token that is looked at
    weight: float


class TokenLook:
    """What one token looks at most in each head; a sequence of TokenLinks, the strongest first.

    index, name: of the token. others: indices of the tokens with the same name. tokens: all names.
    """

    def __init__(self, tokens, index, others, links):
        self.tokens = tokens
        self.index = index
        self.others = others
        self.links = links

    @property
    def name(self):
        return self.tokens[self.index]

    def __len__(self):
        return len(self.links)

    def __getitem__(self, index):
        return self.links[index]

    def __repr__(self):
        lines = [f'token {self.index} "{short(self.name)}" looks at']
        width = max((len(short(self.tokens[link.key])) for link in self.links[:_SHOWN]), default=0)
        for layer, head, key, weight in self.links[:_SHOWN]:
            lines.append(f"  layer {layer} head {head}  {short(self.tokens[key]):<{width}}  {weight:.2f}"
                         f"  (token {key})")
        if len(self.links) > _SHOWN:
            lines.append(f"  and less in {len(self.links) - _SHOWN} more heads")
        if self.others:
            lines.append(f'"{short(self.name)}" is also ' + ", ".join(f"token {i}" for i in self.others))
        return "\n".join(lines)


def find_token(tokens, wanted, function="look"):
    """A name or an index -> the index, and those of other tokens with that name."""
    if isinstance(wanted, str):
        name = wanted[1:] if len(wanted) > 1 and wanted[0] == " " else wanted
        places = [i for i, token in enumerate(tokens) if token == name]
        if not places:
            raise ValueError(f"{function}: no token is {wanted!r}; they are {' '.join(map(short, tokens))}")
        return places[0], places[1:]
    try:
        index = range(len(tokens))[operator.index(wanted)]
    except TypeError:
        raise TypeError(f"{function}: a token is asked for by its index or its name, not by "
                        f"{type(wanted).__name__}") from None
    except IndexError:
        raise IndexError(f"{function}: there is no token {wanted}; the text has {len(tokens)}, from 0 to "
                         f"{len(tokens) - 1}") from None
    return index, [i for i, token in enumerate(tokens) if token == tokens[index] and i != index]
