"""What is written for Prometheus, and how seldom servers are asked for it."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from topology.prometheus import board as boards
from topology.prometheus.board import Board, Part
from topology.prometheus.counting import MOST_SERIES, Counter, Histogram
from topology.prometheus.queues import QueueNumbers, queue_gauges
from topology.prometheus.text import Family, gauge, render
from topology.spec import Ladder, Topology, WorkQueue

pytestmark = pytest.mark.anyio


class Away(Exception):
    """The server is not there."""


async def after(seconds: float) -> None:
    """An answer that takes so long."""
    answered = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, answered.set)
    await answered.wait()


def one(value: float = 1) -> list[Family]:
    return [gauge("asked", "t", [({}, value)])]


def test_labels_are_escaped_and_numbers_are_exact() -> None:
    family = gauge(
        "n", "text", [({"queue": 'a"b\\c\nd\udc80'}, 12.25), ({}, 123456789.0), ({}, float("inf"))]
    )
    assert render([family]).splitlines() == [
        "# HELP n text",
        "# TYPE n gauge",
        'n{queue="a\\"b\\\\c\\nd\\\\udc80"} 12.25',
        "n 123456789",
        "n +Inf",
    ]


def test_a_name_is_told_once_with_the_samples_of_all() -> None:
    page = render([gauge("up", "t", [({"what": "a"}, 1)]), gauge("up", "t", [({"what": "b"}, 0)])])
    assert page.count("# TYPE up") == 1
    assert page.endswith('up{what="a"} 1\nup{what="b"} 0\n')


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    histogram = Histogram("s", "t", ("task",), (1, 2.5))
    for value in (0.5, 1, 2, 100):
        histogram.observe(value, "pay")
    assert render([histogram.family()]).splitlines()[2:] == [
        's_bucket{task="pay",le="1"} 2',
        's_bucket{task="pay",le="2.5"} 3',
        's_bucket{task="pay",le="+Inf"} 4',
        's_sum{task="pay"} 103.5',
        's_count{task="pay"} 4',
    ]


def test_names_that_strangers_choose_make_no_series_without_end() -> None:
    counter, histogram = Counter("c", "t", ("queue", "task")), Histogram("h", "t", ("task",), (1,))
    for number in range(MOST_SERIES + 50):
        counter.add("q", str(number))
        histogram.observe(1, str(number))
    samples = counter.family().samples
    assert len(samples) == MOST_SERIES + 1
    assert [value for _, labels, value in samples if labels == {"queue": "other", "task": "other"}] == [50]
    counts = {
        labels["task"]: value for suffix, labels, value in histogram.family().samples if suffix == "_count"
    }
    assert (len(counts), counts["other"]) == (MOST_SERIES + 1, 50)


def test_a_counter_starts_at_nought() -> None:
    counter = Counter("c", "t", ("answer",))
    counter.start("confirmed")
    assert render([counter.family()]).splitlines()[-1] == 'c{answer="confirmed"} 0'


def test_queues_are_those_of_the_topology_and_missing_ones_are_left_out() -> None:
    topology = Topology((WorkQueue("a", Ladder(steps=2)), WorkQueue("b", Ladder(steps=2))))
    found = {
        "a": QueueNumbers(ready=3, unacknowledged=2, stuck=1, consumers=4),
        "a.retry.250ms": QueueNumbers(ready=5, stuck=2),
        "a.retry.500ms": QueueNumbers(ready=6),
        "a.dlq": QueueNumbers(ready=7),
        "strangers": QueueNumbers(ready=99, stuck=9),
    }
    lines = render(queue_gauges(topology, found)).splitlines()
    assert 'redrive_queue_messages{queue="a",state="ready"} 3' in lines
    assert 'redrive_queue_messages{queue="a",state="unacknowledged"} 2' in lines
    assert 'redrive_queue_messages{queue="a.dlq",state="ready"} 7' in lines
    assert 'redrive_queue_consumers{queue="a"} 4' in lines
    assert 'redrive_ladder_messages{ladder="a"} 11' in lines
    assert 'redrive_queue_stuck_messages{queue="a"} 3' in lines
    assert 'redrive_queue_stuck_messages{queue="other"} 9' in lines
    assert not any('redrive_queue_messages{queue="b"' in line or "strangers" in line for line in lines)


async def test_scrapes_at_once_share_one_question_and_the_next_is_asked_later() -> None:
    asked = 0

    async def read() -> list[Family]:
        nonlocal asked
        asked += 1
        await after(0.01)
        return one(asked)

    board = Board({"database": [Part("jobs", read)]}, (Away,))
    pages = await asyncio.gather(*(board.families() for _ in range(5)))
    pages.append(await board.families())
    assert asked == 1
    told = [render(page) for page in pages]
    assert all("asked 1\n" in page for page in told)
    assert all('redrive_up{what="database"} 1' in page for page in told)


async def test_a_question_that_takes_long_is_not_waited_for_and_the_rest_is_told() -> None:
    answer = asyncio.Event()

    async def slow() -> list[Family]:
        await answer.wait()
        return [gauge("slow", "t", [({}, 1)])]

    async def quick() -> list[Family]:
        return one()

    board = Board({"database": [Part("slow", slow)], "management": [Part("quick", quick)]}, (Away,))
    page = render(await board.families(0.05))
    assert "asked 1" in page
    assert "slow 1" not in page
    assert 'redrive_up{what="database"} 0' in page
    assert 'redrive_up{what="management"} 1' in page
    answer.set()
    page = render(await board.families())
    assert "slow 1" in page
    assert 'redrive_up{what="database"} 1' in page
    await board.close()


async def test_a_server_that_goes_away_leaves_its_last_figures_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(boards, "FRESH_S", 0.0)
    monkeypatch.setattr(boards, "REST", 0)
    away = False

    async def read() -> list[Family]:
        if away:
            raise Away("no")
        return one()

    async def defect() -> list[Family]:
        raise ValueError("a defect")

    board = Board({"database": [Part("jobs", read)], "other": [Part("broken", defect)]}, (Away,))
    assert 'redrive_up{what="database"} 1' in render(await board.families())
    away = True
    page = render(await board.families())
    assert 'redrive_up{what="database"} 0' in page
    assert 'redrive_up{what="other"} 0' in page
    assert "asked 1" in page
    assert 'redrive_figures_age_seconds{part="jobs"}' in page
    monkeypatch.setattr(boards, "OLDEST_S", -1.0)
    page = render(await board.families())
    assert "asked" not in page.replace("was asked", "").replace("were asked", "")
    away = False
    monkeypatch.setattr(boards, "OLDEST_S", 60.0)
    assert 'redrive_up{what="database"} 1' in render(await board.families())


async def test_a_question_that_took_long_is_asked_the_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "FRESH_S", 0.0)
    times = []

    async def read() -> list[Family]:
        times.append(asyncio.get_running_loop().time())
        await after(0.02)
        return one()

    board = Board({"database": [Part("jobs", read)]}, (Away,))
    async with asyncio.timeout(30):
        while len(times) < 3:
            await board.families()
    assert all(later - before >= 0.02 * boards.REST for before, later in pairwise(times))


async def test_one_slow_question_is_no_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what is asked after it would be missing for as long as it is slow."""
    monkeypatch.setattr(boards, "FRESH_S", 0.0)
    monkeypatch.setattr(boards, "REST", 0)
    asked: list[str] = []

    def part(name: str, *, fails: bool) -> Part:
        async def read() -> list[Family]:
            asked.append(name)
            if fails:
                raise Away
            return []

        return Part(name, read)

    board = Board({"database": [part("slow", fails=True), part("a", fails=False)]}, (Away,))
    for _ in range(2):
        assert 'redrive_up{what="database"} 1' in render(await board.families())
    assert asked == ["slow", "a"] * 2
    asked.clear()
    gone = Board({"database": [part(name, fails=True) for name in "abc"]}, (Away,))
    assert 'redrive_up{what="database"} 0' in render(await gone.families())
    assert asked == ["a", "b"]
