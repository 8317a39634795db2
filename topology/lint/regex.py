"""A policy's pattern, tried the way the broker tries it: unanchored, on bytes, within a bounded time."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

# The longest pattern and the most repetitions without end that are tried: a name has 255 bytes, and the time
# for a pattern grows with their power.
_LONGEST = 1_000
_MOST_REPEATS = 4
# Where PCRE, which the broker uses, and Python read the same text differently.
_READ_DIFFERENTLY = re.compile(r"\[\[?[:.=]|\{,|\\[Zz]")
_ENDLESS = re.compile(r"[*+]|\{\d+,\}")


class UndecidedPattern(Exception):
    """The pattern cannot be tried here; the message says why."""


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a name contains the pattern.

    Raises:
        UndecidedPattern: not a regular expression here, read differently by PCRE, or too costly.
    """
    if pattern in ("", ".*", "^", "^.*", ".*$"):
        return lambda _: True
    if len(pattern) > _LONGEST:
        raise UndecidedPattern(f"it is longer than {_LONGEST} characters")
    if _READ_DIFFERENTLY.search(pattern):
        raise UndecidedPattern("it uses syntax that only PCRE has")
    if _costly(pattern):
        raise UndecidedPattern("it repeats repetitions: trying it could take for ever")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            search = re.compile(pattern.encode()).search
    except (re.error, Warning, OverflowError, RecursionError, UnicodeEncodeError) as error:
        raise UndecidedPattern(f"it is not a regular expression here: {error}") from error
    return lambda name: search(name.encode("utf-8", "surrogatepass")) is not None


def _costly(pattern: str) -> bool:
    """Whether a repetition without end stands inside another repetition, or there are many."""
    bare = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "x", pattern, flags=re.DOTALL)
    if len(_ENDLESS.findall(bare)) > _MOST_REPEATS:
        return True
    inside: list[bool] = []
    for position, character in enumerate(bare):
        if character == "(":
            inside.append(False)
        elif character == ")" and inside:
            repeats = inside.pop()
            if repeats and re.match(r"[*+]|\{\d", bare[position + 1 :]):
                return True
            if inside and repeats:
                inside[-1] = True
        elif inside and (character in "*+|" or _ENDLESS.match(bare, position)):
            inside[-1] = True
    return False
