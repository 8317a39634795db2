"""A set of routing keys as a sequence of words.

`*` and `#` are wildcards only as `Wild` values: the text `*` is a word like any other, as it is in a routing
key or in a direct exchange's binding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property


class Wild(Enum):
    ONE = "*"  # exactly one word
    MANY = "#"  # any number of words, none included

    __hash__ = object.__hash__  # the enum's own is slow, and patterns are looked up all the time


Word = str | Wild
_WILD: dict[str, Word] = {wild.value: wild for wild in Wild}


@dataclass(frozen=True)
class Pattern:
    """A set of routing keys. The empty key has no words."""

    words: tuple[Word, ...]

    @cached_property
    def exact(self) -> bool:
        """Whether it is one key and nothing else."""
        return all(isinstance(word, str) for word in self.words)

    @cached_property
    def text(self) -> str:
        """As it is written in a binding."""
        return ".".join(word.value if isinstance(word, Wild) else word for word in self.words)

    @cached_property
    def head(self) -> tuple[Word, ...] | None:
        """The words, without a `#` at the end; None where there is one elsewhere."""
        head = self.words[:-1] if self.open else self.words
        return None if Wild.MANY in head else head

    @property
    def open(self) -> bool:
        """Whether it ends with `#`."""
        return self.words[-1:] == (Wild.MANY,)

    @cached_property
    def _hash(self) -> int:
        return hash(self.words)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self.text


# No pattern twice; not necessarily disjoint.
Keys = frozenset[Pattern]
ANY_PATTERN = Pattern((Wild.MANY,))
ANY: Keys = frozenset({ANY_PATTERN})
NONE: Keys = frozenset()


def exactly(key: str) -> Pattern:
    """The one key, whatever characters it has."""
    return Pattern(tuple(key.split(".")) if key else ())


def topic(binding_key: str) -> Pattern:
    """What a topic binding matches: `*` and `#` that stand alone between dots are wildcards."""
    words = binding_key.split(".") if binding_key else []
    return Pattern(tuple(ordered(_WILD.get(word, word) for word in words)))


def ordered(words: Iterable[Word]) -> Iterator[Word]:
    """`#.*` and `#.#` say the same as `*.#` and `#`: one way to write each."""
    pending = False
    for word in words:
        if word is Wild.MANY:
            pending = True
            continue
        if pending and isinstance(word, str):
            yield Wild.MANY
            pending = False
        yield word
    if pending:
        yield Wild.MANY
