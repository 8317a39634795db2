"""Rounds of letters that a consumer drains and replays, is killed over, and whose successor ends."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from storage import replays
from storage.replays import Asked
from tests.support import background
from tests.support.crashing.orders import Nursery
from tests.support.graveyard import Graveyard, order, plain
from tests.support.shared import Places
from tests.support.waiting import eventually

SETTINGS = {"REDRIVE_DLQ_BATCH_LETTERS": "2", "REDRIVE_DLQ_PREFETCH": "100", "REDRIVE_DLQ_BATCH_MS": "20"}
TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/a.py", line 1, in f\nValueError: no'


@dataclass
class Round:
    """Letters to be drained, and those of the round before under replay, at the same time."""

    graveyard: Graveyard
    nursery: Nursery
    number: int = 0
    stored: int = 0
    names: dict[str, int] = field(default_factory=dict)
    asked: ClassVar[Asked] = Asked("test")

    def load(self) -> None:
        """Two jobs' letters and four strangers', in two queues; a plan for those that were stored before."""
        self.number += 1
        yard, before = self.graveyard, list(self.names.values())
        jobs = [f"job-{self.number}-{n}" for n in range(2)]
        for job in jobs:
            yard.failed_job(job, TRACEBACK)
        strangers = [plain(b"x", message_id=f"stranger-{self.number}-{n}") for n in range(4)]
        for queue, messages in (
            ("orders", [order(job) for job in jobs] + strangers[:2]),
            ("mails", strangers[2:]),
        ):
            yard.publish(queue, *messages)
            yard.reject(queue, len(messages))
        self.stored += 6
        if before:
            self.plan = background.run(_plan(yard.database.url, before, self.asked))

    def is_done(self) -> bool:
        unsent = "select count(*) from redrive.replay_items where state in ('staged', 'publishing')"
        value = self.graveyard.database.value
        return bool(value("select count(*) from redrive.dead_letters") >= self.stored and not value(unsent))

    def crash(self, point: str = "", points: Path | None = None) -> int:
        """Run until it dies, or has nothing to do any more and is told to stop; the exit code."""
        pid = self.nursery.start(points=points, die_at=point)
        code: list[int | None] = [None]

        def over() -> bool:
            code[0] = self.nursery.exit_code(pid)
            return code[0] is not None or self.is_done()

        eventually(over, 40, f"it dies at {point!r}, or has done all")
        return self.nursery.terminate(pid) if code[0] is None else code[0]

    def recover(self) -> None:
        """Another consumer does what is left, and everything adds up."""
        pid = self.nursery.start_draining()
        eventually(self.is_done, 40, "the successor has stored and sent all")
        eventually(lambda: not self._depths(), 20, "it has taken all")
        assert self.nursery.terminate(pid) == 0
        if self._depths():  # what it had in hand, stored before and not acked
            again = self.nursery.start_draining()
            eventually(lambda: not self._depths() and self.is_done(), 20, "all is acked")
            assert self.nursery.terminate(again) == 0
        assert not self._depths()
        self._check_letters()
        self._check_replay()

    def _depths(self) -> int:
        return sum(self.graveyard.vhost.depths(["orders.dlq", "mails.dlq", "redrive.unrouted.dlq"]).values())

    def _check_letters(self) -> None:
        rows = self.graveyard.letters()
        counted = Counter(row["job_id"] or row["message_id"] for row in rows)
        assert set(counted.values()) == {1}, "each is stored once"
        assert len(rows) == self.stored
        assert self.graveyard.database.value("select sum(letters)::int from redrive.groups") == self.stored
        mine = f"-{self.number}-"
        self.names = {n: row["id"] for row in rows if mine in (n := row["job_id"] or row["message_id"])}
        for name, letter in self.names.items():
            if name.startswith("job"):
                assert self.graveyard.job_row(name)["letter_id"] == letter

    def _check_replay(self) -> None:
        items = self._items()
        arrived = self._arrived()
        assert set(arrived) <= {item["token"] for item in items}
        for item in items:
            times, is_job = arrived[item["token"]], item["generation"] is not None
            assert item["letter_state"] == "replayed"
            if is_job:  # its claim tells a second arrival
                assert (item["state"], times >= 1) == ("published", True), item
            else:
                assert (item["state"], times) in (("published", 1), ("unknown", 1), ("unknown", 0)), item

    def _arrived(self) -> Counter[str]:
        """What is in the work queues, taken off, by the replay's token."""
        arrived: Counter[str] = Counter()
        for queue in ("orders", "mails"):
            for _ in range(self.graveyard.depth(queue)):
                headers = self.graveyard.take(queue)[0]
                arrived[str(headers.get_header("redrive-replay"))] += 1
        return arrived

    def _items(self) -> list[dict[str, Any]]:
        if self.number < 2:
            return []
        sql = (
            "select i.*, l.state as letter_state, l.job_id from redrive.replay_items i"
            " join redrive.dead_letters l on l.id = i.letter_id where i.replay_id = $1::uuid"
        )
        return self.graveyard.database.fetch(sql, self.plan)


class Crashing(Protocol):
    """What can be done again and again with a process that dies at a point."""

    def load(self) -> None: ...

    def crash(self, point: str = "", points: Path | None = None) -> int | None: ...

    def recover(self) -> None: ...


R = TypeVar("R", bound=Round)


async def _plan(url: str, letters: list[int], asked: Asked) -> str:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        return (await replays.create(connection, letters, asked)).id
    finally:
        await connection.close()


@contextmanager
def in_rounds(
    kind: type[R], places: Places, directory: Path, settings: Mapping[str, str] = SETTINGS
) -> Iterator[R]:
    """In a vhost and a database of its own."""
    with places.fresh() as (vhost, database, processes):
        graveyard = Graveyard(vhost, database, processes)
        nursery = Nursery(directory, graveyard.settings | dict(settings))
        yield kind(graveyard, nursery)
        nursery.close()


def crash_at_some(rounds: Crashing, points: list[str], *, sample: int, seed: int) -> None:
    """Kill it at some of these points, a round each; at all of them with REDRIVE_TEST_ALL_CRASHES=1.

    Of the points that one run comes by, another need not come by each: half of them must be.
    """
    everything = bool(os.environ.get("REDRIVE_TEST_ALL_CRASHES"))
    chosen = points if everything else random.Random(seed).sample(points, min(sample, len(points)))
    missed = []
    for point in chosen:
        rounds.load()
        if rounds.crash(point) != -signal.SIGKILL:
            missed.append(point)
        try:
            rounds.recover()
        except AssertionError as error:
            raise AssertionError(f"killed {point}: {error}") from error
    print(f"{len(chosen) - len(missed)} of {len(points)} points; not come by: {missed}")
    assert len(missed) <= len(chosen) // 2
