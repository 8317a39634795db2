"""A message whose forged death history a broker may choke on goes round the ladder and is back without."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from topology.delivery import Refusal, TaskMessage
from topology.spec import WorkQueue
from workers.arrival import Arrival, seconds_until_due
from workers.entries import Postponed

if TYPE_CHECKING:
    from workers.parsing import GuardedMessage

logger = logging.getLogger(__name__)
SOON_S = 0.1


def round_trip(
    message: GuardedMessage,
    checked: TaskMessage | Refusal,
    queue: WorkQueue,
    session: int,
    *,
    at_once: bool,
) -> Postponed:
    """The way of such a message, whatever else is right or wrong with it: that is judged when it is back."""
    if isinstance(checked, Refusal):
        checked = TaskMessage(checked.id or "", checked.task or "", [], {}, {}, protocol=2)
    wait_s = SOON_S if at_once else max(SOON_S, seconds_until_due(checked))
    # As protocol 2, whose body is left alone.
    checked = checked._replace(protocol=2)
    arrival = Arrival(
        message, checked, queue, message.raw_properties, message.raw_body, session, 0.0,
        attempt=checked.attempt,
    )  # fmt: skip
    logger.warning("its death history is forged: sent round", extra=arrival.log_fields("cleaned"))
    return Postponed(arrival, wait_s)
