"""A replay is paused, resumed and cancelled while its consumer is killed: nothing lost, nothing sent unasked.

A few of the places, by a seed; with REDRIVE_TEST_ALL_CRASHES=1 all of them (minutes).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import asyncpg
import pytest

from storage import replay_control
from storage.replay_control import ReplayStateError
from storage.replays import Asked
from tests.support import background
from tests.support.crashing.rounds import Round, crash_at_some, in_rounds
from tests.support.shared import Places

SEED = 7
SAMPLE = 6
OF_REPLAYS = ("replaying.py", "replay_steps.py", "replay_control.py", "replay_outcomes.py", "sending.py")


@dataclass
class CancelledRound(Round):
    """At the first letters an operator pauses the replay, resumes it, and cancels it."""

    asked: ClassVar[Asked] = Asked("test", rate=2.0)
    told: bool = False
    cancelled: int = 0

    def load(self) -> None:
        super().load()
        self.told = False

    def is_done(self) -> bool:
        if self.number > 1:
            sent = self.graveyard.database.value(
                "select count(*) from redrive.replay_items where replay_id = $1::uuid"
                " and state not in ('staged', 'cancelled')",
                self.plan,
            )
            if sent and not self.told:
                self.told = True
                for act in (replay_control.pause, replay_control.resume, replay_control.cancel):
                    self._tell(act)
        return super().is_done()

    def _tell(self, act: Any) -> None:
        async def tell() -> None:
            connection = await asyncpg.connect(self.graveyard.database.url)
            try:
                await act(connection, self.plan, by="test")
            except ReplayStateError:  # all is sent, and decided
                pass
            finally:
                await connection.close()

        background.run(tell())

    def _check_replay(self) -> None:
        items = self._items()
        arrived = self._arrived()
        assert set(arrived) <= {item["token"] for item in items}
        for item in items:
            times, is_job = arrived[item["token"]], item["job_id"] is not None
            seen: tuple[Any, ...] = (item["state"], item["letter_state"], times)
            if item["state"] == "cancelled":
                assert seen == ("cancelled", "open", 0), item
                if is_job:
                    row = self.graveyard.job_row(item["job_id"])
                    assert (row["state"], row["generation"], row["letter_id"]) == (
                        "DEAD", 1, item["letter_id"],
                    )  # fmt: skip
            elif is_job:
                assert seen[:2] == ("published", "replayed"), item
                assert times >= 1
                assert self.graveyard.job_row(item["job_id"])["generation"] == 2
            else:
                assert item["letter_state"] == "replayed"
                assert (item["state"], times) in (("published", 1), ("unknown", 1), ("unknown", 0)), item
        if any(item["state"] == "cancelled" for item in items):
            self.cancelled += 1


@pytest.fixture
def rounds(places: Places, tmp_path: Path) -> Iterator[CancelledRound]:
    with in_rounds(CancelledRound, places, tmp_path) as made:
        yield made


@pytest.mark.timeout(1800)
def test_killed_while_a_replay_is_cancelled_each_letter_is_open_or_sent(
    rounds: CancelledRound, tmp_path: Path
) -> None:
    rounds.load()
    rounds.crash()
    rounds.recover()
    rounds.load()
    assert rounds.crash(points=tmp_path / "points") == 0
    rounds.recover()
    assert rounds.cancelled == 1
    seen = set((tmp_path / "points").read_text().splitlines())
    points = sorted(point for point in seen if Path(point.split()[1].partition(":")[0]).name in OF_REPLAYS)
    assert any("replay_control.py" in point for point in points)
    crash_at_some(rounds, points, sample=SAMPLE, seed=SEED)
    assert rounds.cancelled >= 2
