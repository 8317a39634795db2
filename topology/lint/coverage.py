"""Whether patterns take a key, whether two have one in common, and which keys several leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count

from topology.lint.pattern import ANY_PATTERN, Pattern, Wild, Word

# Words tried. Beyond, nothing is believed to be uncovered: no false alarm.
_MOST_STEPS = 50_000


def matches(pattern: Pattern, key: str) -> bool:
    if pattern.exact:
        return pattern.text == key
    return _takes(pattern.words, key.split(".") if key else ())


def intersects(left: Pattern, right: Pattern) -> bool:
    """Whether any key is in both."""
    if left.exact or right.exact:
        return matches(right, left.text) if left.exact else matches(left, right.text)
    if left.head is not None and right.head is not None:
        return side_by_side(left, right) is not None
    seen, todo = {(0, 0)}, [(0, 0)]
    one, other = left.words, right.words
    while todo:
        i, j = todo.pop()
        a, b = (one[i] if i < len(one) else None), (other[j] if j < len(other) else None)
        if a is None and b is None:
            return True
        steps = []
        if a is Wild.MANY:
            steps.append((i + 1, j))
        if b is Wild.MANY:
            steps.append((i, j + 1))
        if a is not None and b is not None and (a == b or isinstance(a, Wild) or isinstance(b, Wild)):
            steps.append((i if a is Wild.MANY else i + 1, j if b is Wild.MANY else j + 1))
        todo += [step for step in steps if step not in seen]
        seen.update(steps)
    return False


def side_by_side(left: Pattern, right: Pattern) -> Pattern | None:
    """The keys in both, where a `#` stands at most at the end of each: one pattern or none."""
    short, long = sorted((left, right), key=lambda pattern: len(pattern.head or ()))
    assert short.head is not None
    assert long.head is not None
    if len(short.head) < len(long.head) and not short.open:
        return None
    words: list[Word] = []
    for one, other in zip(short.head, long.head, strict=False):
        if one != other and Wild.ONE not in (one, other):
            return None
        words.append(other if one is Wild.ONE else one)
    still_open = long.open and (short.open or len(short.head) < len(long.head))
    return Pattern((*words, *long.head[len(words) :], *([Wild.MANY] if still_open else [])))


def uncovered(pattern: Pattern, covers: Iterable[Pattern]) -> str | None:
    """An example of a key that is in `pattern` and in none of `covers`, or None where there is none."""
    if pattern.exact:
        return None if any(matches(cover, pattern.text) for cover in covers) else pattern.text
    return _uncovered(pattern, tuple(covers))


# Retry ladders ask the same of every queue: their patterns do not name it.
@lru_cache(maxsize=65_536)
def _uncovered(pattern: Pattern, covers: tuple[Pattern, ...]) -> str | None:
    near = [cover for cover in covers if cover == ANY_PATTERN or intersects(cover, pattern)]
    if any(cover in (ANY_PATTERN, pattern) for cover in near):
        return None
    literals = sorted({word for one in near for word in one.words if isinstance(word, str)})
    own = {word for word in pattern.words if isinstance(word, str)}
    fresh = next(word for n in count() if (word := f"other{n or ''}") not in own.union(literals))
    letters = [fresh, *(word for word in literals if word not in own), *sorted(own)]
    reading = _Reading(near)
    start = (0, reading.start)
    seen, steps = {start}, 0
    todo: list[tuple[tuple[int, int], tuple[str, ...]]] = [(start, ())]
    for (position, held), key in todo:  # grows while it is walked: breadth first, so the example is short
        rest = pattern.words[position:]
        if all(word is Wild.MANY for word in rest) and not held & reading.ends:
            return ".".join(key)
        for following, letter in _steps(rest, position, letters):
            steps += 1
            if steps > _MOST_STEPS:
                return None
            then = held if letter is None else reading.after(held, letter)
            if (following, then) not in seen:
                seen.add((following, then))
                todo.append(((following, then), key if letter is None else (*key, letter)))
    return None


def _steps(rest: Sequence[Word], position: int, letters: list[str]) -> Iterator[tuple[int, str | None]]:
    if not rest:
        return
    if isinstance(rest[0], str):
        yield position + 1, rest[0]
    elif rest[0] is Wild.ONE:
        yield from ((position + 1, letter) for letter in letters)
    else:
        yield position + 1, None
        yield from ((position, letter) for letter in letters)


class _Reading:
    """Several patterns read at once, word by word: each of their positions is a bit of a number."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._many = self._one = self.ends = begins = 0
        self._words: dict[str, int] = {}
        bit = 1
        for pattern in patterns:
            begins |= bit
            for word in pattern.words:
                if word is Wild.MANY:
                    self._many |= bit
                elif word is Wild.ONE:
                    self._one |= bit
                else:
                    self._words[word] = self._words.get(word, 0) | bit
                bit <<= 1
            self.ends |= bit
            bit <<= 1
        self.start = self._closed(begins)

    def after(self, held: int, word: str) -> int:
        """The positions that one more word leads to."""
        taken = held & (self._one | self._words.get(word, 0))
        return self._closed(taken << 1 | held & self._many)

    def _closed(self, held: int) -> int:
        """With every `#` that may also stand for nothing."""
        skipped = held
        while skipped := (skipped & self._many) << 1 & ~held:
            held |= skipped
        return held


def _takes(words: Sequence[Word], key: Sequence[str]) -> bool:
    """Whether the one pattern takes the one key."""
    position = at = 0
    many, resume = -1, 0  # the last `#`, and how many words of the key it has taken
    while at < len(key):
        word = words[position] if position < len(words) else None
        if word is Wild.MANY:
            many, resume = position, at
            position += 1
        elif word is Wild.ONE or word == key[at]:
            position, at = position + 1, at + 1
        elif many >= 0:
            resume += 1
            position, at = many + 1, resume
        else:
            return False
    return all(word is Wild.MANY for word in words[position:])
