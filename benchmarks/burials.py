"""Dead letters as a broker makes them: published to a work queue, rejected, moved to its dead-letter queue.

They are of jobs, with the rows that a worker leaves behind, or of a program that is not ours.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import BaseModel

from tests.support.databases import Database
from tests.support.vhosts import Vhost, fresh_vhost
from tests.support.waiting import eventually
from topology.address import AmqpAddress
from topology.declare import apply
from topology.entities import compile_topology
from topology.headers import PUBLISH
from topology.messages import Message, task_message
from topology.spec import JobType, Ladder, Topology, WorkQueue
from topology.wire import RawProperties, install, properties

Kind = Literal["job", "foreign"]
WINDOW = 1_000


class Payload(BaseModel):
    """Of the jobs that die."""

    data: str


TOPOLOGY = Topology((WorkQueue("bench", Ladder(steps=2)),), (JobType("bench.die", "bench", Payload),))
# How the foreign queue is declared says nothing about us: its owner may have any dead-letter exchange.
_FOREIGN: dict[str, Any] = {
    "x-queue-type": "quorum",
    "x-dead-letter-exchange": "foreign.graves",
    "x-dead-letter-routing-key": "foreign",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}
# Twenty causes of death, a group each.
_ROWS = r"""
WITH made AS (
    INSERT INTO redrive.jobs (id, type, queue, state, reason, error, attempt, queued_at, finished_at)
    SELECT $1 || n, 'bench.die', 'bench', 'DEAD', 'exception', 'ValueError: no', 1, now(), now()
    FROM generate_series(1, $2::int) AS n RETURNING id)
INSERT INTO redrive.attempts (job_id, generation, attempt, claim, worker, outcome, reason, exception_type,
    message, traceback, ended_at)
SELECT id, 1, 1, gen_random_uuid(), 'bench', 'failed', 'exception', 'ValueError', 'no',
       E'Traceback (most recent call last):\n'
       || repeat(E'  File "/app/shop/orders.py", line 12, in place\n    return charge(order)\n', 5)
       || E'  File "/app/shop/cause' || abs(hashtext(id)) % 20 || E'.py", line 7, in charge\n'
       || E'    raise ValueError("no")\nValueError: no\n', now()
FROM made
"""


@dataclass(frozen=True)
class Cemetery:
    """A vhost with a queue of ours and one of strangers, each with its dead-letter queue."""

    vhost: Vhost

    def bury(self, kind: Kind, letters: int, size: int, database: Database | None) -> None:
        """Fill the dead-letter queue.

        Args:
            size: of a body, in bytes.
            database: gets the rows of the jobs; None where nobody looks at them.
        """
        batch = secrets.token_hex(4) + "-"
        if kind == "job" and database is not None:
            database.execute(_ROWS, batch, letters)
        self.publish(kind, messages(kind, batch, letters, size))
        eventually(lambda: self.vhost.depth(work_queue(kind)) == letters, 120, "all are published")
        with self.vhost.channel() as channel:
            channel.basic_qos(prefetch_count=WINDOW)
            for number, (method, _, _) in enumerate(channel.consume(work_queue(kind)), 1):
                if number % (WINDOW // 2) == 0 or number == letters:
                    channel.basic_nack(cast(Any, method).delivery_tag, multiple=True, requeue=False)
                if number == letters:
                    break
        eventually(lambda: self.vhost.depth(dead_letter_queue(kind)) == letters, 120, "all are buried")

    def publish(self, kind: Kind, found: Iterable[Message]) -> None:
        with self.vhost.channel() as channel:
            for message in found:
                raw = cast(Any, RawProperties(message.properties))
                channel.basic_publish("", work_queue(kind), message.body, raw)


def work_queue(kind: Kind) -> str:
    return "bench" if kind == "job" else "foreign"


def dead_letter_queue(kind: Kind) -> str:
    return f"{work_queue(kind)}.dlq"


def messages(kind: Kind, batch: str, letters: int, size: int) -> Iterator[Message]:
    """Numbered from 1; the ids of jobs are those of their rows."""
    text = secrets.token_hex(size)  # which a database compresses no better than it does most bodies
    envelope = len(task_message("", "bench.die", {"data": ""}).body)
    for number in range(1, letters + 1):
        name = f"{batch}{number}"
        if kind == "job":
            yield task_message(name, "bench.die", {"data": text[: max(size - envelope, 0)]})
        else:
            headers: dict[str, object] = {"tenant": "t1", "trace": f"trace-{name}", PUBLISH: name}
            named = {"message_id": name, "content_type": "application/json"}
            raw = properties(headers=headers, delivery_mode=2, **named)
            yield Message(raw.encode(), json.dumps({"order": text[: max(size - 13, 0)]}).encode())


@contextmanager
def cemetery(amqp_url: str, management_url: str) -> Iterator[Cemetery]:
    """In a vhost of its own."""
    install()
    with fresh_vhost(amqp_url, management_url) as vhost:
        apply(AmqpAddress.parse(vhost.amqp_url), compile_topology(TOPOLOGY))
        with vhost.channel() as channel:
            channel.exchange_declare("foreign.graves", "direct", durable=True)
            channel.queue_declare("foreign", durable=True, arguments=_FOREIGN)
            channel.queue_declare("foreign.dlq", durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_bind("foreign.dlq", "foreign.graves", "foreign")
        yield Cemetery(vhost)
