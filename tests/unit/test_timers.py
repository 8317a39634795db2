"""What Celery cancels does not stay in memory until its time."""

from __future__ import annotations

from typing import Any

from kombu.asynchronous.timer import Timer

from workers.timers import sweep


def _run_due(timer: Any) -> None:
    for wait_s, entry in timer:
        if wait_s is not None or entry is None:
            return
        entry()


def test_cancelled_timers_leave_the_queue_and_the_others_keep_their_order() -> None:
    timer = Timer()
    fired: list[int] = []
    entries = [timer.call_after(-seconds, fired.append, (seconds,)) for seconds in range(1000, 0, -1)]
    for entry in entries[3:]:
        entry.cancel()

    sweep(timer)

    assert len(timer) == 3
    _run_due(timer)
    assert fired == [1000, 999, 998]


def test_a_sweep_while_the_timer_is_read_loses_nothing() -> None:
    timer = Timer()
    fired: list[int] = []
    for number in range(10):
        timer.call_after(number - 100, fired.append, (number,))
    gone = [timer.call_after(1000, fired.append, (-1,)) for _ in range(100)]
    reading = iter(timer)
    next(reading)[1]()
    for entry in gone:
        entry.cancel()

    sweep(timer)
    _run_due(reading)

    assert fired == list(range(10))
    assert len(timer) == 0
