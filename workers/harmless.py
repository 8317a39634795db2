"""Which run shows that a worker which has just connected may take its full window.

Poison ends the connection or the process as it is read, or its process as it runs; then it is alone there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from workers.parsing import redelivered

if TYPE_CHECKING:
    from workers.arrival import Arrival
    from workers.consumer import RedriveConsumer

# A redelivered job that runs for so long did not come again for what it does to a worker. A job whose worker
# was lost in the middle of its run is not believed even then: it is `suspect`, and has to end first.
HARMLESS_S = 3.0


def widen(consumer: RedriveConsumer) -> None:
    """Something has run here that is no poison."""
    if not consumer.cut and not consumer.closing and consumer.task_consumer is not None:
        consumer.task_consumer.settled(False)


def widen_for(consumer: RedriveConsumer, arrival: Arrival, runs: Callable[[], bool]) -> None:
    """A pool process began the run. `runs` tells whether it still does."""

    def lives() -> None:
        if runs() and arrival.session == consumer.ledger.session:
            widen(consumer)

    if not redelivered(arrival.message):
        consumer.hub.call_soon(widen, consumer)  # not here: it may raise
    elif consumer.task_consumer.cautious and not arrival.suspect:
        consumer.hub.call_later(HARMLESS_S, lives)
