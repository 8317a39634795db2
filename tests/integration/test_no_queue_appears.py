"""A misspelt queue or job makes no queue: only `topology apply` does."""

from __future__ import annotations

import sys

import pytest

from tests.support.databases import Database
from tests.support.planned import exported
from tests.support.processes import Processes
from tests.support.stack import Stack
from tests.support.vhosts import Vhost
from tests.support.work import Work

MISSPELT = {
    "queue": "add.apply_async((1, 2), queue='wokr')",
    "exchange": "add.apply_async((1, 2), exchange='ghost', routing_key='wokr')",
    "unrouted task": "app.send_task('t.add', (1, 2), queue='celery')",
}


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes)


def test_a_worker_of_a_misspelt_queue_ends_and_makes_none(work: Work) -> None:
    before = exported(work.vhost)
    worker = work.start("-Q", "wokr", ready=False)

    assert worker.wait(60) != 0
    assert "wokr" in worker.log
    assert exported(work.vhost) == before


@pytest.mark.parametrize("call", MISSPELT.values(), ids=MISSPELT)
def test_a_publish_to_a_misspelt_queue_fails_and_makes_none(work: Work, call: str) -> None:
    before = exported(work.vhost)
    script = f"from tests.support.worker_jobs import add, app; {call}"
    publisher = work.processes.start("publisher", [sys.executable, "-c", script], work.settings)

    assert publisher.wait(60) != 0, publisher.tail()
    assert exported(work.vhost) == before


def test_a_working_worker_makes_none_that_stays(work: Work) -> None:
    """Celery's queues for remote control and events go with the worker."""
    before = exported(work.vhost)["queues"]
    worker = work.start()
    assert work.result(work.submit("t.add", x=1, y=1)) == 2
    while_running = [queue for queue in exported(work.vhost)["queues"] if queue not in before]
    assert worker.terminate(60) == 0

    assert [queue for queue in while_running if not queue["auto_delete"]] == []
    assert exported(work.vhost)["queues"] == before


def test_remote_control_adds_no_queue_that_is_not_in_the_topology(work: Work) -> None:
    worker = work.start("-Q", "work")
    before = exported(work.vhost)["queues"]
    script = (
        "from tests.support.worker_jobs import app; "
        "print([app.control.add_consumer(queue, reply=True, timeout=20, limit=1)"
        " for queue in ('wokr', 'work')])"
    )
    asking = work.processes.start("asking", [sys.executable, "-c", script], work.settings)

    assert asking.wait(60) == 0, asking.tail()
    assert "queue 'wokr' is not in the topology; there are: work" in asking.log
    assert "add consumer work" in asking.log
    assert worker.exit_code is None
    assert [queue for queue in exported(work.vhost)["queues"] if queue not in before] == []


def test_an_unknown_job_is_refused_and_makes_no_queue(stack: Stack) -> None:
    stack.apply_topology()
    stack.start_api()
    before = exported(stack.vhost)

    answer = stack.http.post(
        "/jobs", json={"type": "payments.chrage", "payload": {}}, headers={"Idempotency-Key": "k"}
    )

    assert answer.status_code == 422, answer.text
    assert "is no job type here" in answer.json()["detail"]
    assert exported(stack.vhost) == before
