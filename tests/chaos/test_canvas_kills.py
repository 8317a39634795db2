"""The worker is killed between a job's end and what follows it: what follows happens once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from celery import chain, chord, group

from tests.support.canvas import APP, Canvas
from tests.support.databases import Database
from tests.support.processes import Process, Processes
from tests.support.proxy import TcpProxy
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually

WAIT_S = 40
Proxied = Callable[..., TcpProxy]


@pytest.fixture
def canvas(vhost: Vhost, database: Database, processes: Processes) -> Iterator[Canvas]:
    made = Canvas.make(vhost, database, processes)
    yield made
    made.close()


def killed_at(canvas: Canvas, process: Process, stuck: TcpProxy, what: bytes) -> None:
    """SIGKILL once `what` is on its way and goes no further; another worker takes over."""
    eventually(lambda: stuck.holds(what), WAIT_S, f"{what!r} is held")
    process.kill()
    stuck.refuse()
    canvas.start(app=APP)


def test_between_the_last_members_end_and_the_body(canvas: Canvas, proxy: Proxied) -> None:
    amqp = proxy(canvas.vhost.amqp_url)
    process = canvas.start(app=APP, REDRIVE_AMQP_URL=amqp.url)
    amqp.hold_from(b"redrive.chord")
    result = chord([canvas.task("add", n, n) for n in range(3)], canvas.task("collect"), app=canvas.client)
    sent = result.apply_async()
    canvas.until_jobs("add", 3)
    killed_at(canvas, process, amqp, b"redrive.chord")

    assert sent.get(timeout=WAIT_S) == [0, 2, 4]
    canvas.until_quiet()
    assert [(job["id"], job["attempt"]) for job in canvas.jobs_of("collect")] == [(sent.id, 1)]


def test_between_a_death_on_record_and_its_errbacks(canvas: Canvas, proxy: Proxied) -> None:
    amqp = proxy(canvas.vhost.amqp_url)
    process = canvas.start(app=APP, REDRIVE_AMQP_URL=amqp.url)
    amqp.hold_from(b"redrive.died")
    signature = canvas.task("bad", "exception")
    signature.link_error(canvas.task("errback"))
    sent = signature.apply_async()
    canvas.until(sent.id, "DEAD")
    killed_at(canvas, process, amqp, b"redrive.died")

    canvas.until_jobs("errback", 1)
    canvas.until_quiet()
    assert len(canvas.jobs_of("errback")) == 1
    canvas.until_letters(1)


def test_between_what_was_sent_and_the_end_on_record(canvas: Canvas, proxy: Proxied) -> None:
    """Links and the rest of a chain go out in the run, before its end is on record: the run is repeated."""
    postgres, recording = proxy(canvas.database.url), b"WHEN d.kind = 'succeeded'"
    process = canvas.start(app=APP, concurrency=1, REDRIVE_DATABASE_URL=postgres.url)
    postgres.hold_from(recording)
    first = canvas.task("add", 1, 0)
    first.link(chain(canvas.task("collect"), canvas.task("collect"), app=canvas.client))
    first.link(chord([canvas.task("echo", n) for n in range(2)], canvas.task("collect"), app=canvas.client))
    first.link(group([canvas.task("echo", 7)], app=canvas.client))
    sent = chain(first, canvas.task("add", 10), app=canvas.client).apply_async()
    killed_at(canvas, process, postgres, recording)

    assert sent.get(timeout=WAIT_S) == 11
    canvas.until_jobs("collect", 3)
    canvas.until_quiet()
    ran = f"Task c.add[{sent.parent.id}] succeeded"
    assert all(ran in worker.log for worker in canvas.processes.started), "it was to run twice"
    assert {task: len(canvas.jobs_of(task)) for task in ("collect", "echo", "add")} == {
        "collect": 3,
        "echo": 3,
        "add": 2,
    }
    assert sorted(json.loads(job["result"]) for job in canvas.jobs_of("echo")) == [[1, 0], [1, 1], [1, 7]]
    assert canvas.letters() == []


def test_a_broker_that_is_away_as_what_follows_is_sent_fails_no_job(canvas: Canvas, proxy: Proxied) -> None:
    amqp, gate = proxy(canvas.vhost.amqp_url), canvas.path("gate")
    worker = canvas.start(app=APP, REDRIVE_AMQP_URL=amqp.url)
    sent = chain(canvas.task("slow", 1, gate), canvas.task("add", 10), app=canvas.client).apply_async()
    canvas.until_state(sent.parent.id, "STARTED")
    amqp.refuse()
    open(gate, "w").close()
    worker.wait_for_log("kombu.exceptions.OperationalError", WAIT_S)
    amqp.resume()

    assert sent.get(timeout=WAIT_S) == 11
    canvas.until_quiet()
    assert (canvas.job(sent.parent.id)["attempt"], canvas.job(sent.parent.id)["crashes"]) == (1, 0)
    assert len(canvas.jobs_of("add")) == 1
    assert canvas.letters() == []


def test_a_member_that_the_broker_gave_up_fails_its_chord(canvas: Canvas) -> None:
    canvas.start_consumer()
    sent = chord([canvas.task("add", 1, 1)], canvas.task("collect"), app=canvas.client).apply_async()
    with canvas.vhost.channel() as channel:

        def returned() -> bool:
            method, _, _ = channel.basic_get("work")
            if method is not None:
                channel.basic_reject(method.delivery_tag, requeue=True)
            return bool(canvas.database.value("select count(*) from redrive.dead_letters"))

        eventually(returned, WAIT_S, "the delivery limit is reached")
    canvas.start(app=APP)

    canvas.until_state(sent.id, "FAILURE")
    assert str(canvas.client.AsyncResult(sent.id).result).startswith(
        f"Dependency {sent.parent.results[0].id} raised WorkerLostError"
    )
