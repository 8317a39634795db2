"""Looks for what no letter tells: groups that are well again, queues nobody drains, old undecided letters."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote

from storage import alert_subjects, alerts
from storage.alert_rules import AlertKind, AlertPolicy
from storage.alert_subjects import Condition, Oldest
from storage.pool import Pool
from topology.consumers import consumer_counts
from topology.errors import TopologyError
from topology.management import Management
from topology.watched import Place

log = logging.getLogger(__name__)
LOOK_S = 3.0
TIMEOUT_S = 2.0
OLDEST: AlertKind = "oldest_undecided"


def subject_of(place: Place) -> str:
    """As REDRIVE_WATCH spells a queue."""
    return f"no_consumer://{quote(place.vhost, safe='')}/{quote(place.queue, safe='')}"


class Undrained:
    """Which queues have had no consumer for a while; any process's consumer counts."""

    def __init__(self, queues: Sequence[Place], after_s: float) -> None:
        self._queues = queues
        self._after_s = after_s
        self._since: dict[Place, float] = {}

    def conditions(self, counts: Mapping[str, Mapping[str, int | None]], now: float) -> list[Condition]:
        """What is known from consumers by vhost and queue, at `now` (monotonic seconds).

        A queue of which it is not known, or not long enough, is left out: another process may know better.
        """
        found = []
        for place in self._queues:
            if place.vhost not in counts:
                continue
            here = counts[place.vhost]
            consumers = here.get(place.queue)
            if consumers is None and place.queue in here:
                continue
            if consumers:
                self._since.pop(place, None)
                found.append(Condition(subject_of(place), "no_consumer", wrong=False, detail="it is drained"))
            elif now - self._since.setdefault(place, now) >= self._after_s:
                what = "has no consumer" if place.queue in here else "does not exist"
                detail = (
                    f"queue {place.queue} of vhost {place.vhost} {what}: its dead letters are not drained"
                )
                found.append(Condition(subject_of(place), "no_consumer", wrong=True, detail=detail))
        return found


def about_oldest(oldest: Oldest | None, limit_s: float, now: datetime) -> Condition:
    """Whether the oldest undecided letter has waited for longer than `limit_s` seconds."""
    if oldest is None or not oldest.too_old:
        return Condition(OLDEST, OLDEST, wrong=False, detail="no undecided letter is that old")
    hours = (now - oldest.stored_at).total_seconds() / 3600
    allowed = f"{limit_s / 3600:g} h are allowed"
    detail = f"letter {oldest.letter_id} has waited {hours:.1f} h for a decision; {allowed}"
    return Condition(OLDEST, OLDEST, wrong=True, detail=detail, letter_id=oldest.letter_id)


class AlertWatch:
    """One of these in each process; the database sees to it that each change is told once."""

    def __init__(
        self,
        pool: Pool,
        policy: AlertPolicy,
        management_url: str,
        queues: Sequence[Place],
        *,
        no_consumer_s: float,
        oldest_s: float,
        on_alert: Callable[[], None],
    ) -> None:
        """Args:
        no_consumer_s: seconds without a consumer; 0: never alerts.
        oldest_s: seconds without a decision; 0: never alerts.
        """
        self._pool = pool
        self._policy = policy
        self._management_url = management_url
        self._vhosts = tuple(dict.fromkeys(place.vhost for place in queues)) if no_consumer_s else ()
        self._undrained = Undrained(queues, no_consumer_s)
        self._oldest_s = oldest_s
        self._on_alert = on_alert
        self._deaf: set[str] = set()

    async def run(self) -> None:
        """Until cancelled. Raises DatabaseAwayError."""
        with Management(self._management_url, TIMEOUT_S) as management:
            while True:
                await self._look(management)
                await asyncio.sleep(LOOK_S)

    async def _look(self, management: Management) -> None:
        await alerts.adopt(self._pool, self._policy)
        await alerts.forget(self._pool, [route.channel for route in self._policy.routes])
        conditions = await self._consumers(management)
        if self._oldest_s:
            oldest = await alert_subjects.oldest_undecided(self._pool, self._oldest_s)
            conditions.append(about_oldest(oldest, self._oldest_s, datetime.now(UTC)))
        raised = await alert_subjects.resolve_groups(self._pool, self._policy)
        raised += await alert_subjects.report(self._pool, conditions, self._policy)
        if raised:
            log.info("alerts raised", extra={"action": "alerts_raised", "alerts": raised})
            self._on_alert()

    async def _consumers(self, management: Management) -> list[Condition]:
        counts = {}
        for vhost in self._vhosts:
            try:
                counts[vhost] = await asyncio.to_thread(consumer_counts, management, vhost)
                self._deaf.discard(vhost)
            except TopologyError as error:
                if vhost not in self._deaf:
                    log.warning(
                        "whether queues have consumers cannot be asked: %s",
                        error,
                        extra={"action": "management_lost", "vhost": vhost},
                    )
                self._deaf.add(vhost)
        return self._undrained.conditions(counts, time.monotonic())
