"""The algebra of routing keys against brute force over a small alphabet."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology.lint.keys import (
    ANY_PATTERN,
    Pattern,
    Wild,
    exactly,
    intersection,
    intersects,
    matches,
    subsumes,
    topic,
    uncovered,
)

ALPHABET = ("a", "b", "c")  # "c" is in no pattern: it stands for every other word
KEYS = [".".join(words) for length in range(6) for words in product(ALPHABET, repeat=length)]
patterns = st.lists(st.sampled_from(["a", "b", "*", "#"]), max_size=4).map(".".join).map(topic)


def keys_of(pattern: Pattern) -> set[str]:
    return {key for key in KEYS if brute(pattern.words, tuple(key.split(".")) if key else ())}


def brute(words: tuple[str | Wild, ...], key: tuple[str, ...]) -> bool:
    if not words:
        return not key
    if words[0] is Wild.MANY:
        return any(brute(words[1:], key[start:]) for start in range(len(key) + 1))
    return bool(key) and (words[0] is Wild.ONE or words[0] == key[0]) and brute(words[1:], key[1:])


@pytest.mark.parametrize(
    ("pattern", "key", "matched"),
    [
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.", True),  # one word, and it is empty
        ("*", "", False),  # the empty key has no word
        ("#", "", True),
        ("a.#", "a", True),
        ("#.b", "a.a.b", True),
        ("a*", "ab", False),  # a star inside a word is a letter
        ("a*", "a*", True),
        ("a#.b", "a#.b", True),
    ],
)
def test_a_topic_binding_matches_words(pattern: str, key: str, matched: bool) -> None:
    assert matches(topic(pattern), key) is matched


def test_a_literal_star_is_a_word_and_not_a_wildcard() -> None:
    assert matches(exactly("*"), "*")
    assert not matches(exactly("*"), "a")
    assert exactly("#").exact
    assert not topic("#").exact
    assert intersects(topic("*"), exactly("#"))


def test_patterns_that_say_the_same_are_equal() -> None:
    assert topic("#.*.#.a") == topic("*.#.a")
    assert topic("#.#") == ANY_PATTERN


@given(patterns, st.sampled_from(KEYS))
def test_matching(pattern: Pattern, key: str) -> None:
    assert matches(pattern, key) is (key in keys_of(pattern))


@settings(max_examples=150)
@given(patterns, patterns)
def test_two_patterns(left: Pattern, right: Pattern) -> None:
    one, other = keys_of(left), keys_of(right)
    both = intersection(left, right)
    assert intersects(left, right) is bool(one & other) or len(left.words) + len(right.words) > 5
    assert intersects(left, right) is bool(both)
    assert set().union(*(keys_of(pattern) for pattern in both)) == one & other
    if subsumes(left, right):
        assert other <= one
    else:
        missing = uncovered(right, [left])
        assert missing is not None
        assert matches(right, missing)
        assert not matches(left, missing)


@settings(max_examples=150)
@given(patterns, st.lists(patterns, max_size=4))
def test_what_several_patterns_leave_uncovered(pattern: Pattern, covers: list[Pattern]) -> None:
    example = uncovered(pattern, covers)
    rest = keys_of(pattern).difference(*(keys_of(cover) for cover in covers))
    if example is None:
        assert rest == set()
    else:
        assert matches(pattern, example)
        assert not any(matches(cover, example) for cover in covers)


@given(patterns, patterns)
def test_meeting_again_changes_nothing(left: Pattern, right: Pattern) -> None:
    for pattern in intersection(left, right):
        assert intersection(pattern, right) == {pattern}
