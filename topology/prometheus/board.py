"""Figures that are asked of a server: asked seldom, each part on its own, and never waited for long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from topology.prometheus.text import Family, gauge

log = logging.getLogger(__name__)
# Prometheus gives a scrape 10 s by default; ours takes less than one.
WITHIN_S = 0.7
FRESH_S = 5.0
# A question that takes long is asked the more seldom: the server rests so many times as long.
REST = 10
# Older than this, a figure says nothing of now.
OLDEST_S = 60.0
MISSED = 2
MISSED = 2


@dataclass(eq=False)
class Part:
    """Figures that one question tells."""

    name: str
    read: Callable[[], Awaitable[list[Family]]]
    families: Sequence[Family] = ()
    read_at: float | None = None
    due_at: float = 0.0
    failed: bool = False


class Board:
    """All figures that one process asks for. Several scrapes at once share what is asked."""

    def __init__(
        self, servers: Mapping[str, Sequence[Part]], expected: tuple[type[BaseException], ...]
    ) -> None:
        """Args:
        servers: the parts that each server is asked for, one after the other.
        expected: errors by which a server says that it is away; others are logged with their traceback.
        """
        self._servers = {server: tuple(parts) for server, parts in servers.items()}
        self._expected = expected
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._up: set[str] = set()

    async def families(self, within_s: float = WITHIN_S) -> list[Family]:
        """What is known within `within_s` seconds: the newest figures, how old they are, and who answers."""
        clock = asyncio.get_running_loop().time
        for server, parts in self._servers.items():
            if server not in self._tasks and any(part.due_at <= clock() for part in parts):
                task = asyncio.create_task(self._ask(server), name=f"figures of the {server}")
                self._tasks[server] = task
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=within_s)
        now = clock()
        known = [
            (part, now - part.read_at)
            for parts in self._servers.values()
            for part in parts
            if part.read_at is not None and now - part.read_at <= OLDEST_S
        ]
        return [
            gauge(
                "redrive_up",
                "Whether this process reaches the server.",
                (({"what": server}, float(server in self._up)) for server in self._servers),
            ),
            gauge(
                "redrive_figures_age_seconds",
                "Age of the figures that were asked of a server; what is older than 60 s is left out.",
                (({"part": part.name}, max(age_s, 0.0)) for part, age_s in known),
            ),
            *(family for part, _ in known for family in part.families),
        ]

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, server: str) -> None:
        parts, clock = self._servers[server], asyncio.get_running_loop().time
        due = [part for part in parts if part.due_at <= clock()]
        missed = 0
        try:
            for part in due:
                # One may be slow. Two in a row: it is the server, and the next would wait for it as long.
                if missed == MISSED:
                    break
                began = clock()
                try:
                    part.families = await part.read()
                except self._expected as error:
                    if not any(other.failed for other in parts):
                        fields = {"action": "figures_missing"}
                        log.warning("no figures of the %s: %s", server, error, extra=fields)
                    part.failed, part.due_at = True, clock() + FRESH_S
                    missed += 1
                except Exception:
                    if not part.failed:
                        log.exception("no figures of %s", part.name, extra={"action": "figures_missing"})
                    part.failed, part.due_at = True, clock() + FRESH_S
                else:
                    part.read_at, part.failed, missed = clock(), False, 0
                    self._up.add(server)
                    part.due_at = clock() + max(FRESH_S, REST * (clock() - began))
            if due and all(part.failed for part in due[:MISSED]):
                self._up.discard(server)
        finally:
            del self._tasks[server]
