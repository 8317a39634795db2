"""Bindings found by topic pattern without trying each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from topology.lint.keys import Pattern, Wild, Word

T = TypeVar("T")


@dataclass
class _Node(Generic[T]):
    """`endless`: reached by a `#`, which may take any number of words more."""

    endless: bool = False
    children: dict[Word, _Node[T]] = field(default_factory=dict)
    held: list[T] = field(default_factory=list)


class TopicTree(Generic[T]):
    """Values under patterns; asked for those whose pattern has a key in common with another pattern."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, pattern: Pattern, value: T) -> None:
        node = self._root
        for word in pattern.words:
            node = node.children.setdefault(word, _Node(endless=word is Wild.MANY))
        node.held.append(value)

    def meeting(self, pattern: Pattern) -> Iterator[T]:
        """Each value once, in no order."""
        words = pattern.words
        seen = {(id(self._root), 0)}
        todo = [(self._root, 0)]
        given: set[int] = set()
        while todo:
            node, position = todo.pop()
            if position == len(words) and node.held and id(node) not in given:
                given.add(id(node))
                yield from node.held
            for step in _steps(node, position, words):
                at = (id(step[0]), step[1])
                if at not in seen:
                    seen.add(at)
                    todo.append(step)


def _steps(node: _Node[T], position: int, words: tuple[Word, ...]) -> Iterator[tuple[_Node[T], int]]:
    """One word read by the pattern, by the tree, or by both; a `#` on either side may also read nothing."""
    if (many := node.children.get(Wild.MANY)) is not None:
        yield many, position
    if position == len(words):
        return
    word = words[position]
    if word is Wild.MANY:
        yield node, position + 1
        for own, child in node.children.items():
            if own is not Wild.MANY:
                yield child, position
        return
    if node.endless:
        yield node, position + 1
    if word is Wild.ONE:
        for own, child in node.children.items():
            if own is not Wild.MANY:
                yield child, position + 1
        return
    for own in (word, Wild.ONE):
        if (found := node.children.get(own)) is not None:
            yield found, position + 1
