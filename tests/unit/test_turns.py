"""A job at its last chance runs alone; everyone else runs together, in the order of coming."""

from __future__ import annotations

from typing import Any, cast

from topology.delivery import TaskMessage
from topology.spec import WorkQueue
from workers.arrival import Arrival
from workers.turns import Turns


def arrival(name: str, *, alone: bool = False) -> Arrival:
    task = TaskMessage(name, "t", [], {}, {}, 2)
    return Arrival(cast(Any, None), task, WorkQueue("work"), b"", b"", 1, 1.0, alone=alone)


def admitted(turns: Turns) -> list[str]:
    return [each.task.id for each in turns.admit()]


def test_all_run_together() -> None:
    turns = Turns()
    for name in "abc":
        turns.ask(arrival(name))

    assert admitted(turns) == ["a", "b", "c"]
    assert admitted(turns) == []


def test_one_at_its_last_chance_waits_for_the_others_to_end_and_holds_up_those_behind() -> None:
    turns, first, last, after = Turns(), arrival("first"), arrival("last", alone=True), arrival("after")
    for each in (first, last, after):
        turns.ask(each)

    assert admitted(turns) == ["first"]
    turns.ended(first)
    assert admitted(turns) == [], "a loss now would count against it: its end is not on record"
    turns.recorded(first)
    assert admitted(turns) == ["last"]
    turns.recorded(first)  # told twice
    assert admitted(turns) == []
    turns.ended(last)
    assert admitted(turns) == ["after"]


def test_two_at_their_last_chance_run_one_after_the_other() -> None:
    turns, one, two = Turns(), arrival("one", alone=True), arrival("two", alone=True)
    turns.ask(one)
    turns.ask(two)

    assert admitted(turns) == ["one"]
    turns.ended(one)
    turns.recorded(one)
    assert admitted(turns) == ["two"]


def test_those_that_wait_can_be_taken_back() -> None:
    turns = Turns()
    turns.ask(arrival("last", alone=True))
    turns.ask(arrival("after"))
    assert admitted(turns) == ["last"]

    assert [each.task.id for each in turns.leave()] == ["after"]
    assert admitted(turns) == []
