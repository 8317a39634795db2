"""What `topology verify` found, one value for each thing that it looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "failed", "not_probed"]
_WORDS: dict[Status, str] = {"ok": "OK", "failed": "FAILED", "not_probed": "NOT PROBED"}
APPLY = "Run: topology apply"


@dataclass(frozen=True)
class Check:
    """One path or entity.

    Args:
        path: what was looked at; the entities of a way through the broker in their order.
        queue: the work queue that it serves, "" for the broker and the catch-all.
        reason: why it is not OK.
        fix: what to do about it.
        seconds: how long a probe took, in real time.
        about: names of the entities that it blames.
    """

    path: str
    queue: str
    status: Status
    reason: str = ""
    fix: str = ""
    seconds: float | None = None
    about: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        took = "" if self.seconds is None else f" ({self.seconds:.2f} s)"
        why = f": {self.reason}" if self.reason else ""
        return f"{self.path}: {_WORDS[self.status]}{took}{why}{f'. {self.fix}' if self.fix else ''}"


def ok(path: str, queue: str, seconds: float | None = None) -> Check:
    return Check(path, queue, "ok", seconds=seconds)


def failed(
    path: str, queue: str, reason: str, fix: str, *, seconds: float | None = None, about: tuple[str, ...] = ()
) -> Check:
    return Check(path, queue, "failed", reason, fix, seconds, about)


def not_probed(path: str, queue: str, reason: str, fix: str = "") -> Check:
    return Check(path, queue, "not_probed", reason, fix)


def count(checks: Iterable[Check], status: Status) -> int:
    return sum(check.status == status for check in checks)
