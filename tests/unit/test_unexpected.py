"""How often in a row the event loop of a worker may fail."""

from __future__ import annotations

from dataclasses import replace

import pytest
from celery.exceptions import WorkerShutdown

from tests.support.worker_jobs import QUEUE
from topology.spec import Topology
from workers.unexpected import CALM_S, FEWEST, Containment, UnexpectedError, recurrences


def test_a_poison_is_dead_lettered_before_its_worker_gives_up() -> None:
    assert recurrences(Topology((QUEUE, replace(QUEUE, name="other", delivery_limit=3)))) == 22
    assert recurrences(Topology((replace(QUEUE, delivery_limit=3),))) == max(FEWEST, 5)


def test_failures_in_a_row_are_counted_from_the_last_good_message_or_minute() -> None:
    now, held_s = 0.0, 0.0

    def loop() -> None:
        nonlocal now
        now += held_s
        raise RuntimeError

    containment = Containment(loop, (), 3, lambda: now)

    def fails(times: int) -> None:
        for _ in range(times):
            with pytest.raises(UnexpectedError):
                containment.run()

    fails(2)
    containment.calm()
    fails(2)
    held_s = CALM_S + 1
    fails(1)
    held_s = 0.0
    fails(1)
    with pytest.raises(WorkerShutdown):
        containment.run()
