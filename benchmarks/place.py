"""A vhost with the measured queues and a migrated database, filled with jobs before a worker starts."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import asyncpg

from benchmarks.jobs import TOPOLOGY
from tests.support import background
from tests.support.databases import Database, fresh_database
from tests.support.servers import ServerUrls
from tests.support.vhosts import Vhost, fresh_vhost
from topology.address import AmqpAddress
from topology.declare import apply
from topology.entities import compile_topology
from topology.messages import task_message
from topology.publisher import Publisher

_ROWS = """
INSERT INTO redrive.jobs (id, type, queue, state, queued_at)
SELECT id, $2, $3, 'QUEUED', now() FROM unnest($1::text[]) AS id
"""


@dataclass(frozen=True)
class Place:
    vhost: Vhost
    database: Database

    def load(self, task: str, queue: str, jobs: int) -> None:
        """Rows and messages as the API and its relay leave them."""
        ids = [str(uuid.uuid4()) for _ in range(jobs)]
        background.run(_rows(self.database.url, task, queue, ids), 600)
        background.run(_publish(self.vhost.amqp_url, task, queue, ids), 600)

    def unfinished(self) -> int:
        """Rows of jobs that have not succeeded."""
        return int(self.database.value("SELECT count(*) FROM redrive.jobs WHERE state <> 'SUCCEEDED'"))


@contextmanager
def fresh_place(urls: ServerUrls, template: str) -> Iterator[Place]:
    """Made for one run, and removed after it."""
    with (
        fresh_vhost(urls.amqp, urls.management) as vhost,
        fresh_database(urls.database, template) as database,
    ):
        apply(AmqpAddress.parse(vhost.amqp_url), compile_topology(TOPOLOGY))
        yield Place(vhost, database)


async def _rows(url: str, task: str, queue: str, ids: Sequence[str]) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(_ROWS, ids, task, queue)
    finally:
        await connection.close()


async def _publish(url: str, task: str, queue: str, ids: Sequence[str]) -> None:
    publisher = Publisher(AmqpAddress.parse(url), "bench", timeout_s=600)
    await publisher.start()
    try:
        async with asyncio.TaskGroup() as group:
            for job_id in ids:
                token = str(uuid.uuid4())
                message = task_message(job_id, task, {}, token=token)
                group.create_task(publisher.publish("", queue, message, token))
    finally:
        await publisher.close()
