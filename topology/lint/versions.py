"""The RabbitMQ versions that a finding holds for, in short."""

from __future__ import annotations

from collections.abc import Callable

from topology.lint.target import Target

_EACH = tuple(Target(3, minor) for minor in range(10, 14)) + tuple(Target(4, minor) for minor in range(4))


def versions(holds: Callable[[Target], bool]) -> str:
    """`3.10+`, `<4.0`, `4.3+`, or `3.12 to 4.2`: from the first version it holds for to the last."""
    held = [number for number, target in enumerate(_EACH) if holds(target)]
    first, last = (held[0], held[-1]) if held else (0, len(_EACH) - 1)
    if last == len(_EACH) - 1:
        return f"{_EACH[first]}+"
    return f"<{_EACH[last + 1]}" if first == 0 else f"{_EACH[first]} to {_EACH[last]}"
