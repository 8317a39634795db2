"""The consumer is killed at every place where it waits over a callback: each is told, under one id.

A few of the places, by a seed; with REDRIVE_TEST_ALL_CRASHES=1 all of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.callers import SETTINGS, Caller
from tests.support.crashing.rounds import Round, crash_at_some, in_rounds
from tests.support.receiver import Receiver, receiver
from tests.support.shared import Places
from tests.support.waiting import eventually

SEED = 3
SAMPLE = 4
OF_CALLBACKS = ("sender.py", "callbacks.py", "poster.py", "reach.py")
TAKEN = 3


@dataclass
class CallbackRound(Round):
    """Three jobs tell a receiver that takes it, one a receiver that is gone."""

    hook: Receiver = field(default_factory=Receiver)
    gone: Receiver = field(default_factory=Receiver)

    def load(self) -> None:
        self.number += 1
        self.hook.taken.clear()
        self.gone.failing[:] = [410] * 100
        yard = self.graveyard
        caller = Caller(yard.vhost, yard.database, yard.processes)
        for number in range(TAKEN):
            caller.end(f"taken-{self.number}-{number}", self.hook.url)
        caller.end(f"gone-{self.number}", self.gone.url)

    def is_done(self) -> bool:
        return not self.graveyard.database.value(
            "select count(*) from redrive.callbacks where state = 'pending'"
        )

    def recover(self) -> None:
        # As if its claims had run out.
        self.graveyard.database.execute(
            "update redrive.callbacks set next_try_at = now() where state = 'pending'"
        )
        pid = self.nursery.start_draining()
        eventually(self.is_done, 40, "the successor has sent all")
        assert self.nursery.terminate(pid) == 0
        rows = self.graveyard.database.fetch(
            "select id::text, state from redrive.callbacks where job_id ~ $1",
            f"^[a-z]+-{self.number}(-|$)",
        )
        assert Counter(row["state"] for row in rows) == {"delivered": TAKEN, "dead": 1}
        told = Counter(json.loads(request.body)["id"] for request in self.hook.taken)
        assert told.keys() == {row["id"] for row in rows if row["state"] == "delivered"}
        assert set(told.values()) <= {1, 2}, "again only where it died"
        assert all(
            request.headers["redrive-delivery"] == json.loads(request.body)["id"]
            for request in self.hook.taken
        )


@pytest.fixture
def rounds(places: Places, tmp_path: Path) -> Iterator[CallbackRound]:
    with (
        in_rounds(CallbackRound, places, tmp_path, SETTINGS) as made,
        receiver() as made.hook,
        receiver() as made.gone,
    ):
        yield made


@pytest.mark.timeout(1800)
def test_killed_at_any_wait_each_callback_is_told_under_one_id(rounds: CallbackRound, tmp_path: Path) -> None:
    rounds.load()
    assert rounds.crash(points=tmp_path / "points") == 0
    rounds.recover()
    seen = set((tmp_path / "points").read_text().splitlines())
    points = sorted(point for point in seen if Path(point.split()[1].partition(":")[0]).name in OF_CALLBACKS)
    names = {Path(point.split()[1].partition(":")[0]).name for point in points}
    assert {"sender.py", "callbacks.py", "poster.py"} <= names
    crash_at_some(rounds, points, sample=SAMPLE, seed=SEED)
