"""Dead letters on their way look like stuck ones: what tells them apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from topology import stuck
from topology.stuck import STUCK_S, Stuck, surely_stuck

STEP_S = STUCK_S / 4


def told(*looks: Mapping[str, int]) -> list[dict[str, int]]:
    found = Stuck()
    return [found.look(counts, number * STEP_S) for number, counts in enumerate(looks)]


def test_what_was_there_at_every_look_is_stuck() -> None:
    assert told(*[{"a": 1}] * 6) == [{}, {}, {}, {}, {"a": 1}, {"a": 1}]
    assert told(*({"a": count} for count in (1, 2, 2, 5, 9))) == [{}, {}, {}, {}, {"a": 9}], "more come"


def test_what_was_gone_or_less_once_is_on_its_way() -> None:
    assert told({"a": 1}, {"a": 1}, {}, {"a": 1}, {"a": 1}, {"a": 1}) == [{}] * 6
    assert told({"a": 1}, {"a": 1}, {"a": 0}, {"a": 1}, {"a": 1}) == [{}] * 5
    assert told(*({"a": count} for count in (4, 4, 3, 4, 4, 4, 4)))[:-1] == [{}] * 6


def test_each_queue_counts_for_itself() -> None:
    looks = told({"a": 1}, {"a": 1, "b": 7}, {"a": 1, "b": 7}, {"b": 7}, {"a": 1, "b": 7}, {"a": 1, "b": 7})
    assert looks == [{}, {}, {}, {}, {}, {"b": 7}]


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def looker(counts: Iterator[Mapping[str, int]]) -> Callable[[], Mapping[str, int]]:
    return lambda: next(counts)


def test_one_look_is_enough_where_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    assert surely_stuck(looker(iter([{"a": 0}]))) == {}
    assert surely_stuck(looker(iter([])), ({}, 90.0)) == {}
    assert clock.now == 100.0


def test_it_looks_until_it_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    assert surely_stuck(lambda: {"a": 3}, ({"a": 2, "b": 1}, 98.0)) == {"a": 3}
    assert clock.now == 98.0 + STUCK_S
    assert surely_stuck(looker(iter([{"a": 1}, {"a": 1}, {}]))) == {}
    assert clock.now == 98.0 + STUCK_S + 2 * stuck.LOOK_S
