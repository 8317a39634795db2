"""A worker at its start: it waits for what is away, and refuses what would lose messages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests.support.databases import Database
from tests.support.processes import Processes
from tests.support.proxy import TcpProxy
from tests.support.vhosts import Vhost
from tests.support.work import DLQ, Work
from topology.address import AmqpAddress
from topology.declare import connection


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes)


def test_it_waits_for_the_database_and_says_so(work: Work, proxy: Callable[..., TcpProxy]) -> None:
    through = proxy(work.database.url, refusing=True)
    worker = work.start(ready=False, REDRIVE_DATABASE_URL=through.url)
    worker.wait_for_log(f"waiting for the database at 127.0.0.1:{through.port}")
    through.resume()
    worker.wait_for_log("ready.")
    assert work.result(work.submit("t.add", x=1, y=1)) == 2


def test_it_can_be_stopped_while_it_waits_for_the_database(
    work: Work, proxy: Callable[..., TcpProxy]
) -> None:
    through = proxy(work.database.url, refusing=True)
    worker = work.start(ready=False, REDRIVE_DATABASE_URL=through.url)
    worker.wait_for_log("waiting for the database")
    assert worker.terminate() == 0


def test_it_waits_for_the_broker_and_says_so(work: Work, proxy: Callable[..., TcpProxy]) -> None:
    through = proxy(work.vhost.amqp_url, refusing=True)
    worker = work.start(ready=False, REDRIVE_AMQP_URL=through.url)
    user = urlsplit(through.url).username or "guest"
    worker.wait_for_log(f"Cannot connect to amqp://{user}:**@127.0.0.1:{through.port}")
    through.resume()
    worker.wait_for_log("ready.")
    assert work.result(work.submit("t.add", x=1, y=1)) == 2


def test_it_waits_while_its_log_in_is_refused(work: Work) -> None:
    user, management = f"late-{uuid4().hex[:6]}", work.vhost.management
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    parts = urlsplit(work.vhost.amqp_url)
    url = parts._replace(netloc=f"{user}:right@{parts.hostname}:{parts.port}").geturl()
    worker = work.start(ready=False, REDRIVE_AMQP_URL=url)
    worker.wait_for_log("waiting for RabbitMQ at")
    try:
        management.put(f"/api/users/{user}", json={"password": "right", "tags": ""}).raise_for_status()
        management.put(f"/api/permissions/{work.vhost.vhost}/{user}", json=rights).raise_for_status()
        worker.wait_for_log("ready.", 40)
        assert work.result(work.submit("t.add", x=1, y=1)) == 2
        assert worker.terminate() == 0
    finally:
        management.delete(f"/api/users/{user}")


def test_it_waits_for_its_vhost_and_can_be_stopped_meanwhile(work: Work) -> None:
    url = urlsplit(work.vhost.amqp_url)._replace(path="/there-is-none").geturl()
    worker = work.start(ready=False, REDRIVE_AMQP_URL=url)
    worker.wait_for_log("waiting for RabbitMQ at")
    worker.wait_for_log("there-is-none")
    assert worker.terminate() == 0


def test_it_waits_for_a_migrated_database(work: Work, empty_database: Database) -> None:
    worker = work.start(ready=False, REDRIVE_DATABASE_URL=empty_database.url)
    worker.wait_for_log("storage migrate")


def test_a_missing_queue_ends_it_with_what_to_do(work: Work) -> None:
    with connection(AmqpAddress.parse(work.vhost.amqp_url), "test") as opened:
        opened.channel().queue_delete("work")
    worker = work.start(ready=False)
    assert worker.wait(30) == 1
    assert "queue 'work' is not on the broker; run: topology apply" in worker.log


def test_a_queue_without_its_dead_letter_exchange_ends_it_with_what_to_do(work: Work) -> None:
    with work.vhost.channel() as channel:
        channel.queue_delete("work")
        channel.queue_declare("work", durable=True)  # as plain Celery makes it
    worker = work.start(ready=False)
    assert worker.wait(30) == 1
    assert "refused to start: queue 'work' is another one" in worker.log
    assert "x-dead-letter-exchange: none -> work.dlx" in worker.log
    assert "run: topology plan" in worker.log
    assert "Traceback" not in worker.log


LATE = """
from celery.signals import worker_ready
from workers.celery_app import Redrive
app = Redrive("late")

@worker_ready.connect
def later(**_):
    @app.task(name="a.late", acks_late=False)
    def late():
        pass
"""


def test_a_task_that_is_registered_late_is_checked_before_it_can_run(
    work: Work, tmp_path: Path, proxy: Callable[..., TcpProxy]
) -> None:
    (tmp_path / "late_app.py").write_text(LATE)
    through = proxy(work.vhost.amqp_url)
    worker = work.start(app="late_app", REDRIVE_AMQP_URL=through.url)
    work.submit("a.late")
    assert work.until_letters(1), "unknown until the next connection"
    through.cut()
    assert worker.wait(60) == 1
    assert "task a.late: acks_late is off" in worker.log


PYTHON = (sys.executable, "-c")
UNSAFE = """
from workers.celery_app import Redrive
app = Redrive("unsafe")

@app.task(name="a.early", acks_late=False)
def early():
    pass

@app.task(name="a.acked", acks_on_failure_or_timeout=True)
def acked():
    pass

@app.task(name="a.long", time_limit=901)
def long():
    pass
"""


def test_an_unsafe_task_is_refused_by_name_and_setting(work: Work, tmp_path: Path) -> None:
    (tmp_path / "unsafe_app.py").write_text(UNSAFE)
    worker = work.start(app="unsafe_app", ready=False)
    assert worker.wait(30) == 1
    assert "task a.early: acks_late is off" in worker.log
    assert "task a.acked: acks_on_failure_or_timeout is on" in worker.log
    assert "task a.long: its hard time limit of 901 s" in worker.log
    assert "is over the 900 s of queue 'work' (time_limit_s)" in worker.log
    assert "Traceback" not in worker.log


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--pool", "solo"), "the pool is solo; prefork and threads are supported: it runs jobs on the main"),
        (
            ("--pool", "threads", "--max-tasks-per-child", "5"),
            "max_tasks_per_child does nothing",
        ),
        (("-Q", "wokr"), "-Q or -X: queue 'wokr' is not in the topology; there are: work"),
        (("-X", "wokr"), "-Q or -X: queue 'wokr' is not in the topology; there are: work"),
        (("--time-limit", "60"), "--time-limit is 60 s, and would have no effect"),
    ],
)
def test_an_unsafe_option_is_refused(work: Work, arguments: tuple[str, ...], said: str) -> None:
    worker = work.start(*arguments, ready=False)
    assert worker.wait(30) != 0
    assert said in worker.log
    assert "Traceback" not in worker.log


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REDRIVE_WORKER_LEASE_S", "-1"),
        ("REDRIVE_WORKER_RENEW_S", "100"),
        ("REDRIVE_WORKER_SOFT_TIME_LIMIT_S", "901"),
        ("REDRIVE_DATABASE_POOL_MIN", "11"),
        ("REDRIVE_AMQP_URL", "http://localhost"),
        ("REDRIVE_DATABASE_URL", ""),
        ("REDRIVE_THIRD_PARTY_URL", "nowhere"),
        ("REDRIVE_TOPOLOGY", "no.such:THING"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(work: Work, name: str, value: str) -> None:
    work.settings |= {"REDRIVE_TOPOLOGY": "topology.catalogue:TOPOLOGY", name: value}
    worker = work.start(app="workers.app", ready=False)
    assert worker.wait(30) == 2
    assert name in worker.log
    assert "Traceback" not in worker.log


def test_a_crash_bound_that_the_broker_would_forestall_is_refused(work: Work) -> None:
    worker = work.start(ready=False, REDRIVE_WORKER_CRASH_BOUND="21")
    assert worker.wait(30) == 1
    assert "REDRIVE_WORKER_CRASH_BOUND is 21, over the delivery limit of queue 'work' (20)" in worker.log


CONFIGURED = """
from workers.celery_app import Redrive
app = Redrive("configured")
app.conf.update({settings})
"""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("broker_transport_options={'confirm_publish': False}", "no confirm_publish"),
        ("task_create_missing_queues=True", "task_create_missing_queues is on"),
    ],
)
def test_a_configuration_that_could_lose_messages_is_refused(
    work: Work, tmp_path: Path, settings: str, said: str
) -> None:
    (tmp_path / "configured_app.py").write_text(CONFIGURED.format(settings=settings))
    worker = work.start(app="configured_app", ready=False)
    assert worker.wait(30) == 1
    assert said in worker.log


def test_a_delay_of_the_publisher_goes_straight_to_the_ladder(work: Work, tmp_path: Path) -> None:
    script = "from tests.support.worker_jobs import add; add.apply_async((1, 2), countdown=15, task_id='c')"
    done = work.processes.start("publisher", [*PYTHON, script], work.settings)
    assert done.wait(30) == 0, done.tail()
    assert work.depth("work") == 0, "it waits on the ladder"
    assert "Direct exchanges" not in done.log
    work.start()
    assert work.result("c") == 3
    assert work.depth(DLQ) == 0


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_long_jobs_that_wait_for_a_new_worker_run_side_by_side_at_once(work: Work, pool: str) -> None:
    first, second = (work.submit("t.mark", key=key, seconds=45.0) for key in ("one", "two"))
    work.start("--pool", pool)
    work.until(second, "RUNNING")
    assert work.job(first)["state"] == "RUNNING"
