"""When letters of a group are worth an alert: pure, over what is on record about the group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

AlertKind = Literal[
    "first_seen", "seen_again", "regression", "rate", "resolved", "no_consumer", "oldest_undecided", "test"
]
ALERT_KINDS: tuple[AlertKind, ...] = (
    "first_seen", "seen_again", "regression", "rate", "resolved", "no_consumer", "oldest_undecided", "test",
)  # fmt: skip
# Of a window: a letter is counted for the window's length, give or take a twelfth.
SLICES = 12
# Below this share of the threshold the rate is over, and the next crossing alerts again.
REARM = 0.5


@dataclass(frozen=True)
class Route:
    """A channel as the database knows it. `resolved`: it also takes news that something is well again."""

    channel: str
    resolved: bool = True


@dataclass(frozen=True)
class AlertPolicy:
    """`silence_s`: after so many seconds without a letter, the next one of a group alerts again.

    A rate alerts from `rate_letters` letters in `rate_s` seconds; 0 letters: never.
    """

    silence_s: float
    rate_letters: int = 0
    rate_s: float = 300.0
    routes: tuple[Route, ...] = ()

    def channels(self, kind: AlertKind) -> tuple[str, ...]:
        """Where an alert goes."""
        return tuple(route.channel for route in self.routes if route.resolved or kind != "resolved")


@dataclass(frozen=True)
class Watch:
    """What is on record about a group. `counts`: letters by slice of the rate's window, the newest first."""

    alerted_at: datetime | None = None
    resolved_at: datetime | None = None
    snoozed_until: datetime | None = None
    missed: bool = False
    above: bool = False
    slice: int = 0
    counts: tuple[int, ...] = ()

    def snoozed(self, now: datetime) -> bool:
        return self.snoozed_until is not None and self.snoozed_until > now


def judge(
    watch: Watch, letters: int, news: AlertKind | None, policy: AlertPolicy, now: datetime
) -> tuple[Watch, AlertKind | None]:
    """What is on record after `letters` more, and the kind of alert they are worth.

    A rate does not alert within a window of another alert of the group: that one has told of the storm. What
    came while the group was snoozed is told of with the first letter afterwards.

    Args:
        news: what the letters are by themselves: the group's first, or the first after silence.
    """
    watch = _counted(watch, letters, policy, now)
    kind = news
    if kind is None and watch.missed and not watch.snoozed(now):
        kind = "seen_again"
    if kind is None and _crosses(watch, policy, now):
        kind, watch = "rate", replace(watch, above=True)
    watch = replace(watch, missed=watch.snoozed(now))
    if kind is not None:
        watch = replace(watch, alerted_at=now, resolved_at=None)
    return watch, kind


def _counted(watch: Watch, letters: int, policy: AlertPolicy, now: datetime) -> Watch:
    number = int(now.timestamp() / (policy.rate_s / SLICES))
    passed = number - watch.slice
    # Numbers that run backwards are those of another window's length.
    old = watch.counts[: SLICES - passed] if 0 <= passed < SLICES else ()
    old = (*(0 for _ in range(passed)), *old) if old else (0,)
    above = watch.above and sum(old) >= policy.rate_letters * REARM
    return replace(watch, above=above, slice=number, counts=(old[0] + letters, *old[1:]))


def _crosses(watch: Watch, policy: AlertPolicy, now: datetime) -> bool:
    if watch.above or not policy.rate_letters or sum(watch.counts) < policy.rate_letters:
        return False
    return watch.alerted_at is None or now - watch.alerted_at >= timedelta(seconds=policy.rate_s)
