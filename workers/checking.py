"""A delivery is checked as the dead-letter consumer will check it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from topology.delivery import Delivery, Refusal, TaskMessage, check_delivery, delivery_of
from topology.headers import OUTCOME
from topology.wire import split

if TYPE_CHECKING:
    from workers.parsing import GuardedMessage


def check(
    message: GuardedMessage, known_tasks: Collection[str]
) -> tuple[TaskMessage, bool] | tuple[Refusal, None]:
    """The task message, and whether it has expired; or why it is none.

    An expired one is nothing to run, but its job may have ended: only the job's row tells.
    """
    # One that has run does not expire any more.
    now = None if OUTCOME in message.headers else datetime.now(UTC)
    delivery = Delivery(message.content_type, message.content_encoding, message.headers, message.raw_body)
    checked = check_delivery(delivery, known_tasks=known_tasks, now=now)
    if isinstance(checked, Refusal):
        # py-amqp reads a few things otherwise; the dead-letter consumer will read it like this.
        delivery = delivery_of(split(message.raw_properties), message.raw_body)
        checked = check_delivery(delivery, known_tasks=known_tasks, now=now)
        message.headers = dict(delivery.headers)
    if isinstance(checked, TaskMessage):
        return checked, False
    if checked.reason == "expired":
        whole = check_delivery(delivery, known_tasks=known_tasks)
        if isinstance(whole, TaskMessage):
            return whole, True
    return checked, None
