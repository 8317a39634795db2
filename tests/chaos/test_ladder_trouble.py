"""A retry that cannot be published is not acked: it goes out once the ladder is mended; no other waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.databases import Database
from tests.support.processes import Process, Processes
from tests.support.proxy import TcpProxy
from tests.support.retry_jobs import LADDER
from tests.support.shared import Places, Shared
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import TIME_SCALE, Work, shared_work
from topology.entities import compile_topology
from topology.names import UNROUTED, UNROUTED_DLQ, step

# 6 s of real time, in laps of which each passes the top step first.
DELAY_S = 30.0
TOP = step("work", LADDER, LADDER.steps - 1)
FAILED = "action=ladder_publish_failed"


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Work]]:
    with shared_work(places, "-Q", "work", module="tests.support.retry_jobs") as shared:
        yield shared


@pytest.fixture
def work(shared: Shared[Work], request: pytest.FixtureRequest) -> Iterator[Work]:
    with shared.lent(request.node) as work:
        yield work


def worker_of(work: Work) -> Process:
    (process,) = work.processes.started
    return process


def outcomes(work: Work, job: str) -> list[str]:
    return [attempt["outcome"] for attempt in work.attempts(job)]


def without_exchange(work: Work) -> None:
    with work.vhost.channel() as channel:
        channel.exchange_delete(TOP)


def without_any_queue(work: Work) -> None:
    with work.vhost.channel() as channel:
        channel.queue_delete(TOP)
        channel.queue_delete(UNROUTED_DLQ)


def mend_the_top(work: Work) -> None:
    """Before the catch-all, which would take what comes too early."""
    wanted = compile_topology(work.topology, TIME_SCALE)
    (queue,) = [queue for queue in wanted.queues if queue.name == TOP]
    with work.vhost.channel() as channel:
        channel.queue_declare(TOP, durable=True, arguments=dict(queue.arguments))
        for binding in wanted.bindings:
            if binding.destination == TOP and binding.kind == "queue" and binding.source == TOP:
                channel.exchange_declare(
                    TOP, "topic", durable=True, arguments={"alternate-exchange": UNROUTED}
                )
                channel.queue_bind(TOP, TOP, binding.routing_key)


TROUBLES: dict[str, tuple[Callable[[Work], None], str]] = {
    "exchange gone": (without_exchange, "404 NOT_FOUND"),
    "no queue takes it": (without_any_queue, "NO_ROUTE"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_retries_wait_unacked_until_the_ladder_is_mended(work: Work, trouble: str) -> None:
    worker = worker_of(work)
    work.result(work.submit("r.note"))  # from now on with the full window
    breaks, said = TROUBLES[trouble]
    breaks(work)
    jobs = [work.submit("r.fail_once", seconds=DELAY_S) for _ in range(6)]
    worker.wait_for_log(FAILED)
    assert said in worker.log
    # Others run meanwhile, and each of the six is tried several times.
    assert work.result(work.submit("r.sleep", seconds=1.5)) == "slept"
    assert worker.log.count(FAILED) <= 2, "one line for all of them"

    mend_the_top(work)
    work.apply()
    for job in jobs:
        work.result(job)
        assert outcomes(work, job) == ["retry", "succeeded"]
    worker.wait_for_log("action=ladder_publish_resumed")
    assert work.letters() == []
    assert worker.exit_code is None
    work.until_settled()


@pytest.mark.rabbitmq4  # 3.10.8 goes on to refuse when the limit is gone
def test_a_retry_that_a_full_queue_refuses_waits_until_there_is_room(
    vhost: Vhost, database: Database, processes: Processes
) -> None:
    # A worker that has just connected takes one message at first: it may be such a retry.
    work = Work(vhost, database, processes, module="tests.support.retry_jobs")
    worker, policies = work.start("-Q", "work"), f"/api/policies/{vhost.vhost}/full"
    policy = {"pattern": "^aside$", "definition": {"max-length": 1}, "apply-to": "queues"}
    work.vhost.management.put(policies, json=policy).raise_for_status()
    eventually(lambda: work.vhost.is_full("aside"), 20, "the queue is full")
    jobs = [work.submit("r.once", how={"queue": "aside", "countdown": 0}) for _ in range(3)]
    worker.wait_for_log(FAILED)
    assert "basic.nack" in worker.log
    assert work.result(work.submit("r.sleep", seconds=1.5)) == "slept"
    work.vhost.management.delete(policies).raise_for_status()

    def taken() -> bool:
        ids = [
            dict(found["properties"] or {}).get("message_id") for found in vhost.get("aside", 20, keep=True)
        ]
        return sorted(id_ for id_ in ids if id_) == sorted(jobs)

    eventually(taken, 40, "the retries are taken, each once")


def test_a_retry_whose_step_is_gone_is_kept_in_the_catch_all(work: Work) -> None:
    with work.vhost.channel() as channel:
        channel.queue_delete(TOP)
    job = work.submit("r.fail_once", seconds=DELAY_S)
    eventually(lambda: work.depth(UNROUTED_DLQ) == 1, 30, "it is a letter")
    work.until_settled()
    assert work.vhost.get(UNROUTED_DLQ)[0]["properties"]["message_id"] == job
    work.apply()


def test_a_retry_whose_confirm_is_lost_is_published_again_and_runs_once(
    vhost: Vhost, database: Database, processes: Processes, proxy: Callable[..., TcpProxy], tmp_path: Path
) -> None:
    work = Work(vhost, database, processes, module="tests.support.retry_jobs")
    through = proxy(work.vhost.amqp_url)
    worker = work.start("-Q", "work", REDRIVE_AMQP_URL=through.url)
    work.result(work.submit("r.note"))
    job = work.submit("r.fail_when", path=str(tmp_path / "now"))
    work.until(job, "RUNNING")
    confirm = b"\x00\x3c\x00\x50"  # basic.ack: that of the broker, for the retry, is the next to come by
    through.hold_from(confirm)
    (tmp_path / "now").touch()
    work.until(job, "RETRYING")
    eventually(lambda: through.holds(confirm), 30, "the retry is with the broker, its confirm is not here")
    through.cut()
    through.resume()
    assert work.result(job) == "done"
    assert outcomes(work, job) == ["retry", "succeeded"]
    work.until_settled(60)
    assert work.letters() == []
    assert worker.exit_code is None
