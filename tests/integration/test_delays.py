"""`countdown` and `eta` from any publisher: the delay is waited for in the broker, and never cut short."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pika
import pytest
from celery import Celery
from kombu import Exchange, Queue, pools

from storage.settings import StorageSettings
from tests.support.retry_jobs import FAR, TOPOLOGY
from tests.support.shared import Places, Shared
from tests.support.waiting import eventually
from tests.support.work import TIME_SCALE, Work, shared_work
from topology.ladder import route
from topology.messages import task_message
from topology.names import dlq, step
from topology.settings import TopologySettings
from topology.wire import RawProperties
from workers.celery_app import Redrive
from workers.settings import Environment, WorkerSettings

# Over the promise of 10 %: the second that it allows, and four for a busy machine.
SLACK_S = 5.0
INDIA = timezone(timedelta(hours=5, minutes=30))


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Work]]:
    with shared_work(places, "-Q", "work,far", module="tests.support.retry_jobs") as shared:
        yield shared


@pytest.fixture
def work(shared: Shared[Work], request: pytest.FixtureRequest) -> Iterator[Work]:
    with shared.lent(request.node) as work:
        yield work


@pytest.fixture
def ours(work: Work) -> Iterator[Redrive]:
    """A publisher with our app."""
    pools.reset()  # kombu's: of all apps of this process with the same URL
    environment = Environment(
        TopologySettings(_env_file=None, amqp_url=work.vhost.amqp_url, time_scale=TIME_SCALE),  # type: ignore[call-arg, arg-type]
        StorageSettings(_env_file=None, database_url="postgresql://localhost/x"),  # type: ignore[call-arg, arg-type]
        WorkerSettings(_env_file=None),  # type: ignore[call-arg]
        TOPOLOGY,
    )
    app = Redrive("publisher", environment=environment, set_as_current=False)
    yield app
    app.close()


@pytest.fixture
def plain(work: Work) -> Iterator[Callable[[int], Celery]]:
    """`plain(protocol)`: a publisher that knows nothing of us."""
    made: list[Celery] = []

    def make(protocol: int) -> Celery:
        app = Celery("plain", set_as_current=False)
        app.conf.update(
            broker_url=work.vhost.amqp_url,
            task_protocol=protocol,
            task_create_missing_queues=False,
            task_queues=[Queue("work", Exchange("", no_declare=True), routing_key="work", no_declare=True)],
            task_default_queue="work",
        )
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


class Sent:
    """What was published, with the real time before which it is not to run."""

    def __init__(self) -> None:
        self.due: dict[str, float] = {}

    def __call__(self, name: str, after_s: float, publish: Callable[[str], Any]) -> None:
        self.due[name] = time.time() + after_s
        publish(name)

    def check(self, work: Work) -> None:
        early, late = {}, {}
        for name, due in self.due.items():
            came = work.result(name)["at"]
            asked = max(due - min(self.due.values()), 0)
            if came < due - 0.001:  # the broker's timers count whole milliseconds
                early[name] = due - came
            if came > due + asked * 0.10 + SLACK_S:
                late[name] = came - due
            assert [attempt["attempt"] for attempt in work.attempts(name)] == [1], "a delay is no attempt"
        assert (early, late) == ({}, {})


def after(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def test_any_publisher_may_ask_for_a_delay(work: Work, ours: Redrive, plain: Callable[[int], Celery]) -> None:
    sent, v1, v2 = Sent(), plain(1), plain(2)

    def by(app: Celery, **how: Any) -> Callable[[str], Any]:
        return lambda name: app.send_task("r.note", (1,), task_id=name, **how)

    def another_language(eta: str, body: bytes = b"[[1],{},{}]") -> Callable[[str], Any]:
        def publish(name: str) -> None:
            headers = {"task": "r.note", "id": name, "eta": eta}
            work.publish(body, pika.BasicProperties(content_type="application/json", headers=headers))

        return publish

    sent("ours, countdown", 5 * TIME_SCALE, by(ours, countdown=5))
    sent("ours, laps", 20 * TIME_SCALE, by(ours, countdown=20))
    sent("ours, eta", 1.0, by(ours, eta=after(1)))
    sent("ours, naive eta", 1.0, by(ours, eta=after(1).replace(tzinfo=None)))
    sent("ours, eta as text", 1.0, by(ours, eta=after(1).isoformat()))
    sent("ours, with an expiry", 1.0, by(ours, eta=after(1), expires=120))
    sent("ours, none", 0, by(ours, countdown=0))
    sent("ours, negative", 0, by(ours, countdown=-7))
    sent("ours, past", 0, by(ours, eta=after(-60)))
    for name, app in (("protocol 1", v1), ("protocol 2", v2)):
        sent(f"{name}, countdown", 1.0, by(app, countdown=1))
        sent(f"{name}, laps", 4.0, by(app, countdown=4))
        sent(f"{name}, eta in India", 1.0, by(app, eta=after(1).astimezone(INDIA)))
        sent(f"{name}, naive eta", 1.0, by(app, eta=after(1).replace(tzinfo=None)))
        sent(f"{name}, past", 0, by(app, eta=after(-60)))
        sent(f"{name}, expiry", 1.0, by(app, countdown=1, expires=120))
    sent("pika, Z", 1.0, another_language(after(1).strftime("%Y-%m-%dT%H:%M:%S.%fZ")))
    sent("pika, offset", 1.0, another_language(after(1).astimezone(INDIA).isoformat()))
    sent("pika, soon", 0.03, another_language(after(0.03).isoformat()))
    sent.check(work)
    work.until_settled()
    assert work.letters() == []


def test_what_expires_before_its_time_is_dead_lettered_and_never_runs(
    work: Work, ours: Redrive, plain: Callable[[int], Celery]
) -> None:
    ours.send_task("r.note", task_id="a", countdown=10, expires=0.5)
    plain(2).send_task("r.note", task_id="b", countdown=2, expires=0.5)
    # Another language's, without the property that lets the broker expire it.
    headers = {"task": "r.note", "id": "c", "eta": after(1).isoformat(), "expires": after(0.5).isoformat()}
    work.publish(b"[[],{},{}]", pika.BasicProperties(content_type="application/json", headers=headers))
    letters = work.until_letters(3, 30)
    assert {properties.headers["id"] for properties, _ in letters} == {"a", "b", "c"}
    assert all(work.attempts(job) == [] for job in "abc")


STEPS_OF_FAR = [step("far", FAR.ladder, number) for number in range(FAR.ladder.steps)]


def retry_from_far(work: Work, seconds: float) -> str:
    """A job of the queue `far` that fails once."""
    job = str(uuid4())
    message = task_message(job, "r.fail_once", {"seconds": seconds})
    work.vhost.publish("far", message.body, RawProperties(message.properties))
    return job


def lateness_s(work: Work, job: str, seconds: float) -> float:
    """Real seconds over the delay, from the end of the first run to the start of the second."""
    first, second = work.attempts(job)
    return float((second["started_at"] - first["ended_at"]).total_seconds()) - seconds * TIME_SCALE


def test_a_short_retry_does_not_wait_behind_a_long_one(work: Work) -> None:
    long = retry_from_far(work, 40)
    work.until(long, "RETRYING")
    short = retry_from_far(work, 1)
    came = work.result(short)
    assert work.job(long)["state"] == "RETRYING"
    assert came < work.result(long)
    for job, seconds in ((short, 1.0), (long, 40.0)):
        assert 0 <= lateness_s(work, job, seconds) <= seconds * TIME_SCALE * 0.10 + SLACK_S


def test_a_short_retry_does_not_wait_behind_two_thousand_long_ones(work: Work) -> None:
    way = route(FAR, 300, time_scale=TIME_SCALE, now_ms=0)
    with work.vhost.channel() as channel:
        channel.confirm_delivery()
        properties = pika.BasicProperties(delivery_mode=2)
        for number in range(2_000):
            channel.basic_publish(way.exchange, way.routing_key, b"long %d" % number, properties)
    eventually(lambda: sum(work.vhost.depths(STEPS_OF_FAR).values()) == 2_000, 30, "the long ones wait")
    short = retry_from_far(work, 1)
    work.result(short)
    assert 0 <= lateness_s(work, short, 1) <= TIME_SCALE * 0.10 + SLACK_S
    assert work.vhost.depths(["far", dlq("far")]) == {"far": 0, dlq("far"): 0}, "they still wait"


def test_a_thousand_jobs_that_fail_in_one_second_come_back_spread_over_half_their_delay(work: Work) -> None:
    ids = [str(uuid4()) for _ in range(1_000)]

    def unfinished() -> list[str]:
        ended = work.database.fetch("select id from redrive.jobs where state = 'SUCCEEDED'")
        return sorted(set(ids) - {row["id"] for row in ended})

    with work.vhost.channel() as channel:  # open until they are there, since nothing confirms them
        for id_ in ids:
            message = task_message(id_, "r.together", {})
            channel.basic_publish("", "work", message.body, RawProperties(message.properties))
        eventually(lambda: not unfinished(), 60, "all have succeeded", every_s=0.5)
    waits = work.database.fetch(
        "select a.delay_ms / 1000.0 as asked_s, extract(epoch from b.started_at - a.ended_at) as waited_s"
        " from redrive.attempts a join redrive.attempts b using (job_id)"
        " where a.attempt = 1 and b.attempt = 2 and a.job_id = any($1::text[])",
        ids,
    )
    assert len(waits) == 1_000
    assert [wait for wait in waits if wait["waited_s"] < float(wait["asked_s"]) * TIME_SCALE - 0.001] == []
    tenths = {int((float(wait["asked_s"]) - 2.5) / 0.25) for wait in waits}
    assert tenths >= set(range(10)), "the delays are drawn from the whole upper half of 5 s"
