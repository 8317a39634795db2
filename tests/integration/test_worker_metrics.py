"""`/metrics` of workers as Celery starts them: counted in the main process, whatever the pool."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress

import asyncpg
import httpx
import pytest

from storage.figures import Figure, workers
from tests.support import background
from tests.support.databases import Database
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.proxy import TcpProxy
from tests.support.scraped import Page, scrape
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import Work

QUEUE = "work"


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Iterator[Work]:
    made = Work(vhost, database, processes)
    yield made
    made.close()


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/metrics"


def serves(port: int) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(url(port), timeout=5).status_code == 200
    return False


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_every_end_of_a_job_is_counted_once(work: Work, pool: str) -> None:
    port = free_port()
    worker = work.start("-P", pool, REDRIVE_WORKER_METRICS_PORT=str(port))
    added = [work.submit("t.add", x=1, y=number) for number in range(3)]
    work.submit("t.flaky", fail=1)
    work.submit("t.poison")
    if pool == "prefork":
        work.submit("t.kill")
    for job in added:
        work.until(job, "SUCCEEDED")
    work.send("t.add", added[0], x=1, y=0)
    work.publish(b"no json")

    def ended(page: Page, task: str, state: str) -> float:
        return page.value("redrive_jobs_ended_total", queue=QUEUE, task=task, state=state)

    def attempts(page: Page, task: str, outcome: str) -> float:
        return page.value("redrive_attempts_total", queue=QUEUE, task=task, outcome=outcome)

    def counted() -> bool:
        page = scrape(url(port))
        assert ended(page, "t.add", "succeeded") == 3
        assert ended(page, "t.flaky", "succeeded") == 1
        assert ended(page, "t.poison", "dead") == 1
        assert (attempts(page, "t.flaky", "retry"), attempts(page, "t.flaky", "succeeded")) == (1, 1)
        assert page.value("redrive_job_attempts_bucket", task="t.add", le="1") == 3
        assert page.value("redrive_job_attempts_bucket", task="t.flaky", le="1") == 0
        assert page.value("redrive_job_attempts_bucket", task="t.flaky", le="2") == 1
        assert page.value("redrive_run_seconds_count", task="t.add") == 3
        assert page.value("redrive_duplicates_total", queue=QUEUE) == 1
        assert page.value("redrive_refused_deliveries_total", queue=QUEUE, reason="undecodable") == 1
        if pool == "prefork":  # the bound of crashes is 3
            assert attempts(page, "t.kill", "crashed") == 3
            assert ended(page, "t.kill", "dead") == 1
        assert page.found("redrive_worker_jobs") == [0]
        assert page.found("redrive_worker_heartbeat_age_seconds")[0] < 60
        assert page.found("redrive_worker_loop_age_seconds")[0] < 60
        return page.found("redrive_up") == [1, 1]

    eventually(counted, 40, "everything is counted")
    assert httpx.get(f"http://127.0.0.1:{port}/", timeout=30).status_code == 404
    assert worker.terminate() == 0
    assert not serves(port)


def test_a_port_that_is_taken_is_passed_over_or_done_without(work: Work) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        without = work.start(concurrency=1, REDRIVE_WORKER_METRICS_PORT=str(port))
        without.wait_for_log("no /metrics: none of 1 ports can be had")
        job = work.submit("t.add", x=1, y=1)
        work.until(job, "SUCCEEDED")
        second = work.start(concurrency=1, REDRIVE_WORKER_METRICS_PORT=f"{port}-{port + 20}")
        second.wait_for_log("serving /metrics")


def test_a_worker_without_its_database_says_so(work: Work, proxy: Callable[..., TcpProxy]) -> None:
    database, port = proxy(work.database.url), free_port()
    database.hold()
    work.start(ready=False, REDRIVE_DATABASE_URL=database.url, REDRIVE_WORKER_METRICS_PORT=str(port))
    eventually(lambda: serves(port), 30, "it serves before it has a connection")
    assert scrape(url(port)).value("redrive_up", what="database") == 0
    database.resume()
    eventually(lambda: scrape(url(port)).found("redrive_up") == [1, 1], 40, "both are there")
    database.refuse()
    eventually(lambda: scrape(url(port)).value("redrive_up", what="database") == 0, 40, "it is away")
    assert scrape(url(port)).value("redrive_up", what="broker") == 1


def test_a_worker_that_stops_in_order_is_not_told_as_lost_and_a_killed_one_is(work: Work) -> None:
    def heard_of() -> set[str]:
        figures = background.run(ask(work.database.url))
        return {labels["worker"] for labels, _ in figures[0].samples}

    orderly, killed = work.start(concurrency=1), work.start(concurrency=1)
    eventually(lambda: len(heard_of()) == 2, 20, "both are on record")
    assert orderly.terminate() == 0
    killed.kill()
    (left,) = heard_of()
    assert f" {left} ready." in killed.log


async def ask(url: str) -> list[Figure]:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return await workers(connection, ())
    finally:
        await connection.close()
