"""What is told of a replay's progress."""

from __future__ import annotations

import pytest

from dlq_consumer.commands.following import duration
from storage.replay_progress import Figures


@pytest.mark.parametrize(
    ("states", "rate_now", "rate", "eta_s"),
    [
        ({"staged": 90, "publishing": 10}, 20.0, 5.0, 5.0),
        ({"staged": 100}, 0.0, 5.0, 20.0),
        ({"staged": 100}, 0.0, None, None),
        ({"published": 100}, 20.0, 5.0, 0.0),
        ({}, 0.0, None, 0.0),
    ],
)
def test_the_time_left_goes_by_the_last_seconds_or_by_the_plan(
    states: dict[str, int], rate_now: float, rate: float | None, eta_s: float | None
) -> None:
    assert Figures(states, rate_now=rate_now).eta_s(rate) == eta_s


def test_what_is_sent_and_what_is_left() -> None:
    numbers = Figures({"staged": 1, "publishing": 2, "published": 4, "unknown": 8, "failed": 16})
    assert (numbers.letters, numbers.unsent, numbers.sent) == (31, 3, 12)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59, "59 s"), (61.2, "1:01"), (3599, "59:59"), (3723, "1:02:03")]
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words
