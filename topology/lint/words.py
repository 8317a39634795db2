"""How findings name things and amounts."""

from __future__ import annotations

from collections.abc import Iterable

from topology.lint.definitions import Binding
from topology.lint.effective import Setting

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def queue(name: str) -> str:
    return f"queue {name!r}"


def exchange(name: str) -> str:
    return f"exchange {name!r}" if name else "the default exchange"


def policy(name: str, operator: bool = False) -> str:
    return f"operator policy {name!r}" if operator else f"policy {name!r}"


def binding(of: Binding) -> str:
    kind = "exchange " if of.destination_type == "exchange" else ""
    return f"binding {of.source!r} -> {kind}{of.destination!r} ({of.routing_key!r})"


def duration(milliseconds: int) -> str:
    """`15 s`, `24 h`, `7 d`, `250 ms`: the largest unit that divides it."""
    for size, unit in _UNITS:
        if milliseconds and milliseconds % size == 0 and (unit != "d" or milliseconds > size):
            return f"{milliseconds // size:,} {unit}"
    return f"{milliseconds:,} ms"


def said(setting: Setting[object]) -> str:
    """`20 (default of RabbitMQ 4.3)`."""
    return f"{setting.value} ({setting.origin})"


def returned(limit: Setting[int]) -> str:
    """`returned more than 20 times (default of RabbitMQ 4.3)`; below 0 is no limit from 4.0 on alone."""
    if limit.value < 0:
        return f"returned at all ({limit.origin} is {limit.value}, which only RabbitMQ 4 takes for no limit)"
    return f"returned more than {limit.value:,} times ({limit.origin})"


def listed(names: Iterable[str], most: int = 5) -> str:
    """`'a', 'b' and 3 more`, in the order given."""
    return joined(map(repr, names), most)


def joined(words: Iterable[str], most: int = 5) -> str:
    """`queue 'a', queue 'b' and 3 more`: what is named already."""
    every = list(words)
    if len(every) > most:
        return f"{', '.join(every[:most])} and {len(every) - most} more"
    return " and ".join(filter(None, (", ".join(every[:-1]), *every[-1:])))
