"""Where letters can be sent again, and what the broker takes: asked before a replay is made."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from pika.adapters.blocking_connection import BlockingConnection
from pika.exceptions import ChannelClosedByBroker

from topology.address import AmqpAddress
from topology.declare import NOT_FOUND, broker_version, connection
from topology.depths import count
from topology.errors import TopologyError
from topology.field_checks import NAME_BYTES
from topology.names import UNROUTED_DLQ, dead_letter_queues, ladder_names
from topology.publisher import HEADER_FRAME_OVERHEAD
from topology.republish import why_in_vain
from topology.settings import ReplaySettings
from topology.spec import Topology

MIB = 1024 * 1024
# max_message_size where nobody set it: 16 MiB since RabbitMQ 4.0, 128 MiB before.
# https://www.rabbitmq.com/docs/limits
LARGEST = 16 * MIB
LARGEST_BEFORE_4 = 128 * MIB
FRAME_MAX = 131_072


@dataclass(frozen=True)
class Targets:
    """What is known before the first letter is sent.

    `refused`: by queue, why nothing is sent there. `job_queues`: the work queues. `largest_body` in bytes.
    `in_vain`: from a letter's properties and body, why sending it would be. `not_asked`: why the broker could
    not be asked which queues there are; "" where it was.
    """

    refused: dict[str, str]
    job_queues: frozenset[str]
    largest_body: int
    in_vain: Callable[[bytes, bytes], str | None]
    not_asked: str = ""


def wrong_name(queue: str) -> str | None:
    """Why no queue can have this name; None when one can."""
    try:
        size = len(queue.encode())
    except UnicodeEncodeError:
        return "is no text in UTF-8"
    if not 0 < size <= NAME_BYTES:
        return f"is {size} bytes long; a queue's name has 1 to {NAME_BYTES}"
    return "holds a NUL" if "\x00" in queue else None


def look(
    address: AmqpAddress, topology: Topology, queues: Collection[str], settings: ReplaySettings, name: str,
    *, watched: Collection[str],
) -> Targets:  # fmt: skip
    """Ask about these queues, over one short connection called `name`. Blocks.

    `watched`: what else than the topology's dead-letter queues is drained in this vhost.

    A broker that does not answer is no error: what is gone is then found when the letters are sent.
    """
    refused = {queue: why for queue in queues if (why := _is_ours(topology, queue))}
    # What arrives there is drained at once, as the letter of another death.
    refused |= {queue: f"{queue} is drained (REDRIVE_WATCH)" for queue in queues if queue in watched}
    work = frozenset(queue.name for queue in topology.queues)
    given = None if settings.max_mib is None else settings.max_mib * MIB
    frame = FRAME_MAX
    missing: list[str] = []
    largest, not_asked = LARGEST_BEFORE_4, ""
    try:
        with connection(address, name) as opened:
            frame = opened._impl.params.frame_max  # pika shows it on other adapters only
            if _major(broker_version(opened)) >= 4:
                largest = LARGEST
            missing = _missing(opened, [queue for queue in queues if queue not in refused])
    except TopologyError as error:
        not_asked = str(error)
    refused |= {queue: f"there is no queue {queue}" for queue in missing}
    in_vain = functools.partial(why_in_vain, largest=frame - HEADER_FRAME_OVERHEAD, now=datetime.now(UTC))
    return Targets(refused, work, given or largest, in_vain, not_asked)


def _missing(opened: BlockingConnection, queues: Collection[str]) -> list[str]:
    found = []
    channel = opened.channel()
    for queue in queues:
        try:
            count(channel, queue)
        except ChannelClosedByBroker as error:
            channel = opened.channel()
            # Whatever else is in the way (a right, another connection's own queue) is told when it is sent.
            if error.reply_code == NOT_FOUND:
                found.append(queue)
    return found


def _is_ours(topology: Topology, queue: str) -> str:
    if queue in dead_letter_queues(topology) or queue == UNROUTED_DLQ:
        return f"{queue} is a dead-letter queue"
    if any(queue in ladder_names(work) for work in topology.queues):
        return f"{queue} belongs to a retry ladder"
    return ""


def _major(version: str) -> int:
    first = version.partition(".")[0]
    return int(first) if first.isdigit() else 0
