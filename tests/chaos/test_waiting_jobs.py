"""Jobs that wait cost a worker no memory, whichever way they came."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pika

from tests.support.databases import Database
from tests.support.memory import rss_bytes
from tests.support.processes import Processes
from tests.support.retry_jobs import FAR
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import Work
from topology.names import step

JOBS = 3_000
MOST_BYTES = 10_000_000
STEPS = [step("far", FAR.ladder, number) for number in range(FAR.ladder.steps)]


def test_waiting_jobs_are_in_the_broker_and_not_in_the_worker(
    vhost: Vhost, database: Database, processes: Processes
) -> None:
    work = Work(vhost, database, processes, module="tests.support.retry_jobs")
    worker = work.start("-Q", "far")

    def publish(count: int, eta: str | None, task: str = "r.note", body: bytes = b"[[],{},{}]") -> None:
        with vhost.channel() as channel:
            channel.confirm_delivery()
            for _ in range(count):
                headers = {"task": task, "id": str(uuid4()), "eta": eta}
                properties = pika.BasicProperties(content_type="application/json", headers=headers)
                channel.basic_publish("", "far", body, properties)

    def waiting(count: int) -> None:
        eventually(lambda: sum(vhost.depths(STEPS).values()) >= count, 90, f"{count} wait in the broker")

    hour = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    publish(200, hour)  # what the first ones make a worker allocate stays allocated
    publish(200, None, "r.fail_once", b'[[],{"seconds":700},{}]')
    waiting(400)
    before = rss_bytes(worker.pid)
    publish(JOBS, hour)
    waiting(400 + JOBS)
    assert rss_bytes(worker.pid) - before < MOST_BYTES
    assert vhost.depth("far") == 0
