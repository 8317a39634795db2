"""Sets of routing keys: what patterns have in common.

Patterns themselves are in `pattern.py`, what they leave uncovered in `coverage.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from topology.lint.coverage import intersects, matches, side_by_side, uncovered
from topology.lint.pattern import ANY, ANY_PATTERN, NONE, Keys, Pattern, Wild, Word, exactly, ordered, topic

__all__ = [
    "ANY",
    "ANY_PATTERN",
    "NONE",
    "Keys",
    "Pattern",
    "Wild",
    "Word",
    "common",
    "exactly",
    "intersection",
    "intersects",
    "matches",
    "smallest",
    "subsumes",
    "topic",
    "uncovered",
]

# Beyond this an intersection is told too wide.
_MOST_PATTERNS = 16
# Each is compared with each.
_MOST_COMPARED = 64


@lru_cache(maxsize=65_536)
def subsumes(wide: Pattern, narrow: Pattern) -> bool:
    """Whether every key of `narrow` is in `wide`."""
    if wide in (narrow, ANY_PATTERN):
        return True
    if narrow.exact:
        return matches(wide, narrow.text)
    if wide.head is not None and narrow.head is not None:
        longer = len(narrow.head) - len(wide.head)
        long_enough = longer >= 0 and (wide.open or (longer == 0 and not narrow.open))
        return long_enough and all(
            own in (Wild.ONE, other) for own, other in zip(wide.head, narrow.head, strict=False)
        )
    return not wide.exact and uncovered(narrow, (wide,)) is None


def intersection(left: Pattern, right: Pattern) -> Keys:
    """The keys in both, as few patterns. Where that takes too many patterns, `left`: a wider set."""
    if left.head is not None and right.head is not None:
        both = side_by_side(left, right)
        return NONE if both is None else frozenset({both})
    if not intersects(left, right):
        return NONE
    if subsumes(right, left):
        return frozenset({left})
    if subsumes(left, right):
        return frozenset({right})
    found = _meet(left.words, right.words, {})
    if len(found) > _MOST_PATTERNS:
        return frozenset({left})
    return smallest(Pattern(tuple(ordered(words))) for words in found)


def smallest(patterns: Iterable[Pattern]) -> Keys:
    """The same keys without patterns that lie inside another one; many patterns are left as they are."""
    patterns = list(dict.fromkeys(patterns))
    if len(patterns) > _MOST_COMPARED:
        return frozenset(patterns)
    kept: list[Pattern] = []
    for pattern in patterns:
        if not any(subsumes(other, pattern) for other in kept):
            kept = [other for other in kept if not subsumes(pattern, other)] + [pattern]
    return frozenset(kept)


def common(left: Pattern, right: Pattern) -> Pattern:
    """One pattern for all keys of both, and more: where they differ in a word, any word."""
    words: list[Word] = []
    for a, b in zip(left.words, right.words, strict=False):
        if a != b and Wild.MANY in (a, b):
            break
        words.append(a if a == b else Wild.ONE)
    else:
        if len(left.words) == len(right.words):
            return Pattern(tuple(ordered(words)))
    return Pattern(tuple(ordered([*words, Wild.MANY])))


_Words = tuple[Word, ...]


def _meet(left: _Words, right: _Words, known: dict[tuple[int, int], set[_Words]]) -> set[_Words]:
    """All ways in which the two can be read side by side. Stops early when there are too many."""
    at = (len(left), len(right))
    if at in known:
        return known[at]
    found: set[_Words] = set()
    if not left or not right:
        rest = left or right
        if all(word is Wild.MANY for word in rest):
            found.add(())
    elif left[0] is Wild.MANY and right[0] is Wild.MANY:
        rests = _meet(left[1:], right, known) | _meet(left, right[1:], known)
        found = {(Wild.MANY, *rest) for rest in rests}
    elif left[0] is Wild.MANY:
        found = _meet(left[1:], right, known) | {(right[0], *r) for r in _meet(left, right[1:], known)}
    elif right[0] is Wild.MANY:
        found = _meet(left, right[1:], known) | {(left[0], *r) for r in _meet(left[1:], right, known)}
    elif left[0] == right[0] or Wild.ONE in (left[0], right[0]):
        word = right[0] if left[0] is Wild.ONE else left[0]
        found = {(word, *rest) for rest in _meet(left[1:], right[1:], known)}
    known[at] = set(list(found)[: _MOST_PATTERNS + 1])
    return known[at]
