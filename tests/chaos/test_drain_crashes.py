"""The consumer is killed at every place where drain or replay waits: nothing is lost, nothing doubled.

A few of the places, by a seed; with REDRIVE_TEST_ALL_CRASHES=1 all of them (minutes).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.crashing.rounds import Round, crash_at_some, in_rounds
from tests.support.shared import Places

SEED = 20
SAMPLE = 10


@pytest.fixture
def rounds(places: Places, tmp_path: Path) -> Iterator[Round]:
    with in_rounds(Round, places, tmp_path) as made:
        yield made


@pytest.mark.timeout(1800)
def test_killed_at_any_wait_nothing_is_lost_and_nothing_doubled(rounds: Round, tmp_path: Path) -> None:
    rounds.load()
    rounds.crash()
    rounds.recover()
    rounds.load()
    assert rounds.crash(points=tmp_path / "points") == 0
    rounds.recover()
    seen = (tmp_path / "points").read_text().splitlines()
    points = sorted(set(seen))
    assert {"drain.py", "intake.py", "replaying.py", "replay_steps.py"} <= {
        Path(point.split()[1].partition(":")[0]).name for point in points
    }
    crash_at_some(rounds, points, sample=SAMPLE, seed=SEED)
