"""CPU time of processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def seconds(pid: int, *, reaped: bool = False) -> float:
    """User and system time of one process so far; `reaped` adds that of its ended children."""
    fields = _stat(pid)
    return sum(int(field) for field in fields[11 : 15 if reaped else 13]) * _TICK_S


def tree_seconds(pid: int) -> float:
    """The same for a process and all below it, ended ones included."""
    return sum(_or_none(each) for each in (pid, *_descendants(pid)))


def children(pid: int) -> list[int]:
    """Its children that live."""
    with suppress(FileNotFoundError, ProcessLookupError):
        found = [
            int(child)
            for thread in (_PROC / str(pid) / "task").iterdir()
            for child in (thread / "children").read_text().split()
        ]
        return sorted(found)
    return []


def resident_mib(pid: int) -> float:
    """Resident memory that is not shared with a file: what the process itself holds."""
    for line in (_PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def _descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from _descendants(child)


def _or_none(pid: int) -> float:
    with suppress(FileNotFoundError, ProcessLookupError):
        return seconds(pid, reaped=True)
    return 0.0


def _stat(pid: int) -> list[str]:
    # The name in brackets may hold blanks; the state follows it as field 3.
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
