"""What a value must be, as the broker checks it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "wrong_type", "bad_value"]
# Ten years: rabbit_misc:check_expiry.
LONGEST_MS = 315_360_000_000
_AGE = re.compile(r"0*[1-9][0-9]*[YMDhms]")


@dataclass(frozen=True)
class Wanted:
    """`words`: as in `a whole number of at least 0`."""

    words: str
    judge: Callable[[object], Verdict]


def whole(least: int | None = None, most: int | None = None, unit: str = "") -> Wanted:
    """A whole number; JSON's `true` and `1.0` are not."""

    def judge(value: object) -> Verdict:
        if not isinstance(value, int) or isinstance(value, bool):
            return "wrong_type"
        return "ok" if (least is None or value >= least) and (most is None or value <= most) else "bad_value"

    words = f"a whole number{unit}"
    if least is not None:
        words += f" from {least} to {most}" if most is not None else f" of at least {least}"
    return Wanted(words, judge)


def text() -> Wanted:
    return Wanted("a text", lambda value: "ok" if isinstance(value, str) else "wrong_type")


def truth() -> Wanted:
    return Wanted("true or false", lambda value: "ok" if isinstance(value, bool) else "wrong_type")


def one_of(*known: str) -> Wanted:
    def judge(value: object) -> Verdict:
        if not isinstance(value, str):
            return "wrong_type"
        return "ok" if value in known else "bad_value"

    return Wanted(" or ".join([", ".join(known[:-1]), known[-1]] if len(known) > 1 else known), judge)


def number_of(*known: int) -> Wanted:
    def judge(value: object) -> Verdict:
        if not isinstance(value, int) or isinstance(value, bool):
            return "wrong_type"
        return "ok" if value in known else "bad_value"

    return Wanted(" or ".join(str(one) for one in known), judge)


def age() -> Wanted:
    """Of a stream's messages: a number and Y, M, D, h, m or s."""

    def judge(value: object) -> Verdict:
        if not isinstance(value, str):
            return "wrong_type"
        return "ok" if _AGE.fullmatch(value) else "bad_value"

    return Wanted("a number and a unit of Y, M, D, h, m, s, like 7D", judge)
