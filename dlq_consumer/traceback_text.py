"""A formatted Python traceback taken apart: the stack of the exception that ended it all. Pure.

What an exception's message says, which may hold tracebacks of its own, is no part of that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEADER = re.compile(r"[ |+]*(Exception Group )?Traceback \(most recent call last\):\s*")
# `  | ` stands before the lines of an exception group.
_FRAME = re.compile(r'[ \t|]*File "(?P<path>[^"\n]+)", line \d+, in (?P<function>.+?)\s*')
_INDENTED = re.compile(r"(\s*\|)?[ \t]{2,}\S|\s*\|?\s*$")
# Of the exceptions inside of a group.
_MEMBERS = re.compile(r"\s*\+-\+-")
# What `storage.text.safe_text` leaves of a long text.
_CUT = re.compile(r"… \d+ characters left out …")
_NEXT = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)


@dataclass(frozen=True)
class Frame:
    path: str
    function: str


@dataclass(frozen=True)
class Stack:
    """`frames`, the outermost first; `exception`: the line that follows them, with the type's name."""

    frames: tuple[Frame, ...]
    exception: str


def last_stack(text: str) -> Stack:
    """That of the last exception of a chain: the one that was not handled."""
    lines = text.splitlines()
    return _stack(lines[_start(lines) :])


def _start(lines: list[str]) -> int:
    """Behind the header of the last exception; a header counts if it is the first, or follows on `_NEXT`."""
    start, announced, seen = 0, False, False
    for number, line in enumerate(lines):
        bare = line.strip(" |")
        if bare in _NEXT:
            announced = True
        elif _CUT.fullmatch(line):
            # What announced the next header may be among what is left out, and so may the header.
            if _in_stack(lines[number + 2 :]):
                start = number + 1
            announced, seen = True, False
        elif _HEADER.fullmatch(line) and (announced or not seen):
            start, announced, seen = number + 1, False, True
        elif bare and seen:
            announced = False
    return start


def _in_stack(lines: list[str]) -> bool:
    for line in lines:
        if _FRAME.fullmatch(line):
            return True
        if not _INDENTED.match(line):
            return False
    return False


def _stack(lines: list[str]) -> Stack:
    frames: list[Frame] = []
    after_cut = bool(lines) and not _FRAME.fullmatch(lines[0])  # then the rest of a line that was cut
    for line in lines:
        if match := _FRAME.fullmatch(line):
            frames.append(Frame(match["path"], match["function"]))
        elif _MEMBERS.match(line):
            break
        elif not (_CUT.fullmatch(line) or after_cut or _INDENTED.match(line)):
            return Stack(tuple(frames), line.strip(" |"))
        after_cut = _CUT.fullmatch(line) is not None
    return Stack(tuple(frames), "")
