"""The event loop between two broker connections: what runs ends on record, and its time limits hold.

Celery only waits there. What has not begun is given back, for the broker delivers it again, to any worker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from celery.worker import loops, state

from workers.draining import finish_writes, give_back_unbegun, watch_all_processes

if TYPE_CHECKING:
    from workers.consumer import RedriveConsumer

# The loop comes back so often.
TICK_S = 0.1


def let_go(consumer: RedriveConsumer) -> None:
    """A connection was lost: its messages are no longer ours to settle, what runs is ours to record."""
    if consumer.ledger.session == 0:
        return  # it never was connected
    consumer.cut = True
    consumer.ledger.session += 1
    finish_writes(consumer.pool)
    give_back_unbegun(consumer)


@contextmanager
def listening(consumer: RedriveConsumer) -> Iterator[None]:
    """Pool and ledger are heard by the event loop, where `pause` runs it."""
    hub = consumer.hub
    if not consumer.cut or hub is None:
        yield
        return
    before = loops._timer_entries(hub.timer)
    watch_all_processes(consumer.pool)
    consumer.controller.register_with_event_loop(hub)
    hub.add_reader(consumer.ledger.fd, consumer.guard.on_replies)
    hub.call_repeatedly(TICK_S, _nothing)
    ours = loops._timer_entries(hub.timer) - before
    consumer.guard.on_replies()
    try:
        yield
    finally:
        loops._cancel_timer_entries(hub.timer, ours)
        # What is added from here on Celery cancels with the connection: limits of runs are to stay.
        consumer.timer_entries_before_start = loops._timer_entries(hub.timer)


def pause(consumer: RedriveConsumer, seconds: float) -> None:
    """Wait, but for a shutdown; at least a turn of the loop."""
    until = time.monotonic() + seconds
    state.maybe_shutdown()
    try:
        if consumer.ledger.fd in getattr(consumer.hub, "readers", ()):
            consumer.containment.contain(_turn, consumer, until)
    finally:  # a loop that fails at once is no reason to come back at once
        while (left_s := until - time.monotonic()) > 0:
            state.maybe_shutdown()
            time.sleep(min(left_s, TICK_S))


def _turn(consumer: RedriveConsumer, until: float) -> None:
    loop = consumer.hub.create_loop()
    while True:
        try:
            next(loop)
        except StopIteration:
            loop = consumer.hub.create_loop()
        state.maybe_shutdown()
        if time.monotonic() >= until:
            return


def _nothing() -> None:
    """Wakes the loop."""
