"""A batch grows only while no pool process could wait for it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from topology.delivery import TaskMessage
from topology.spec import WorkQueue
from workers.arrival import Arrival
from workers.completing import Finished
from workers.entries import Item, Started
from workers.gathering import Inbox, may_grow
from workers.outcomes import Returned


@pytest.mark.parametrize(
    ("waited_ms", "unfinished", "processes"),
    [
        (1, 0, 4),  # an idle worker, or one in which all has ended
        (2, 1, 4),  # three processes are idle
        (2, 5, 4),  # each has a job and most have no next one
        (10, 40, 4),  # nobody waits, but those who look at the rows
    ],
)
def test_a_batch_goes_out(waited_ms: float, unfinished: int, processes: int) -> None:
    assert not may_grow(waited_ms, 2, unfinished, processes)


@pytest.mark.parametrize(
    ("waited_ms", "unfinished", "processes"),
    [(1, 1, 4), (1, 5, 4), (2, 6, 4), (9, 6, 4), (9, 64, 4), (9, 2, 1)],
)
def test_a_batch_waits_for_more(waited_ms: float, unfinished: int, processes: int) -> None:
    assert may_grow(waited_ms, 2, unfinished, processes)


def test_without_a_time_to_gather_every_batch_goes_out_at_once() -> None:
    assert not may_grow(0, 0, 40, 4)


def test_the_inbox_keeps_the_order_and_knows_the_ends_in_it() -> None:
    task, inbox = TaskMessage("a", "t", [], {}, {}, 2), Inbox()
    arrival = Arrival(cast(Any, None), task, WorkQueue("work"), b"", b"", 1, 1.0)
    items: list[Item] = [Started(arrival), Finished(arrival, Returned()), arrival]
    for item in items:
        inbox.put(item)
    assert (len(inbox), inbox.ends) == (3, 1)
    assert inbox.take() == items
    assert (len(inbox), inbox.ends) == (0, 0)
