"""Where a process serves its figures, as the settings spell it."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

MOST = 100


def parse_ports(text: str) -> tuple[int, ...]:
    """`0`: none. `9641`: this one. `9641-9648`: the first that is free, for several processes of a machine.

    Raises:
        ValueError: neither.
    """
    first, dash, last = text.strip().partition("-")
    wrong = f"is {text!r}; it must be a port (9641), a range of {MOST} at most (9641-9648), or 0 for none"
    if not (first.isascii() and first.isdigit()) or (dash and not (last.isascii() and last.isdigit())):
        raise ValueError(wrong)
    low, high = int(first), int(last or first)
    if (low, dash) == (0, ""):
        return ()
    if not 0 < low <= high < 65536 or high - low >= MOST:
        raise ValueError(wrong)
    return tuple(range(low, high + 1))


def _checked(text: str) -> str:
    parse_ports(text)
    return text


# Of a setting.
Ports = Annotated[str, AfterValidator(_checked)]
