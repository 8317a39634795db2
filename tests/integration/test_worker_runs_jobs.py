"""A real worker process on a real broker and database: how attempts end, in each pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.processes import Process
from tests.support.shared import Places, Shared
from tests.support.waiting import eventually
from tests.support.work import TIME_SCALE, Work, shared_work
from topology.headers import ATTEMPT, Attempt
from topology.names import step


@pytest.fixture(scope="module", params=["prefork", "threads"])
def pool(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def shared(places: Places, pool: str) -> Iterator[Shared[Work]]:
    with shared_work(places, "--pool", pool) as shared:
        yield shared


@pytest.fixture
def work(shared: Shared[Work], request: pytest.FixtureRequest) -> Iterator[Work]:
    with shared.lent(request.node) as work:
        yield work


def outcomes(work: Work, job: str) -> list[tuple[str, str | None]]:
    return [(attempt["outcome"], attempt["reason"]) for attempt in work.attempts(job)]


def test_a_job_succeeds_and_its_result_is_json(work: Work, worker: Process) -> None:
    job = work.submit("t.add", x=2, y=3)
    assert work.result(job) == 5
    (attempt,) = work.attempts(job)
    assert (attempt["outcome"], attempt["generation"], attempt["attempt"]) == ("succeeded", 1, 1)
    work.until_settled()


def test_a_transient_failure_waits_on_the_ladder_and_then_succeeds(work: Work, worker: Process) -> None:
    job = work.submit("t.flaky", fail=2)
    assert work.result(job) == {"retries": 2, "attempt": 3}
    assert outcomes(work, job) == [("retry", None), ("retry", None), ("succeeded", None)]
    first = work.attempts(job)[0]
    assert (first["exception_type"], first["message"]) == ("tests.support.worker_jobs.Flaky", "try 0")
    assert first["delay_ms"] == 1000
    work.until_settled()
    assert work.letters() == []


def test_jobs_that_fail_together_come_back_spread_over_half_their_delay(work: Work, worker: Process) -> None:
    jobs = [work.submit("t.spread") for _ in range(40)]
    for job in jobs:
        work.until(job, "SUCCEEDED")
    waits = work.database.fetch(
        "select a.delay_ms, extract(epoch from b.started_at - a.ended_at) * 1000 as waited_ms"
        " from redrive.attempts a join redrive.attempts b using (job_id)"
        " where a.attempt = 1 and b.attempt = 2"
    )
    delays = [wait["delay_ms"] for wait in waits]
    assert len(delays) == len(jobs)
    assert 2_000 <= min(delays) < 2_500 < 3_500 < max(delays) <= 4_000
    assert all(wait["waited_ms"] >= wait["delay_ms"] * TIME_SCALE for wait in waits)


def test_a_retry_may_carry_other_arguments_and_is_never_early(work: Work, worker: Process) -> None:
    job = work.submit("t.retry_after", seconds=10.0)  # 2 s of real time
    waiting = work.until(job, "RETRYING")
    assert work.result(job) == "came back with -1"
    first, second = work.attempts(job)
    waited = (second["started_at"] - first["ended_at"]).total_seconds()
    assert waited >= 2.0, waiting


def test_the_retry_waits_in_a_retry_queue_of_the_broker(work: Work, worker: Process) -> None:
    from tests.support.worker_jobs import QUEUE

    job = work.submit("t.retry_after", seconds=40.0)  # 8 s
    work.until(job, "RETRYING")
    steps = [step("work", QUEUE.ladder, number) for number in range(QUEUE.ladder.steps)]
    eventually(lambda: sum(work.depth(name) for name in steps) == 1, 5, "one message on the ladder")


def test_exhausted_retries_are_dead_lettered_with_the_last_error(work: Work, worker: Process) -> None:
    job = work.submit("t.flaky", fail=99)
    dead = work.until(job, "DEAD")
    assert (dead["reason"], dead["attempt"]) == ("exhausted", 4)
    assert "try 3" in dead["error"]
    ((properties, _),) = work.until_letters(1)
    assert properties.headers[ATTEMPT] == "1.4"
    assert properties.headers["retries"] == 3
    assert outcomes(work, job)[-1] == ("failed", "exhausted")


ENDS: list[tuple[str, dict[str, Any], str, str]] = [
    ("t.poison", {}, "exception", "ZeroDivisionError"),
    ("t.exit", {}, "exception", "SystemExit"),
    ("t.interrupt", {}, "exception", "KeyboardInterrupt"),
    ("t.reject", {}, "rejected", "celery.exceptions.Reject"),
    ("t.unserialisable", {}, "exception", "kombu.exceptions.EncodeError"),
    ("t.unpicklable", {}, "exception", "tests.support.worker_jobs.Unpicklable"),
    ("t.soft", {}, "soft_timeout", "billiard.exceptions.SoftTimeLimitExceeded"),
    ("t.add", {"x": 1}, "exception", "TypeError"),
    ("t.retry_in", {"seconds": "nan"}, "exception", "ValueError"),
    ("t.retry_in", {"seconds": "inf"}, "exception", "ValueError"),
    ("t.retry_in", {"seconds": "1e300"}, "exception", "ValueError"),
    ("t.retry_by_hand", {"seconds": "nan"}, "exception", "ValueError"),
    ("t.retry_by_hand", {"seconds": "inf"}, "exception", "ValueError"),
]


def test_every_bad_end_is_dead_lettered_with_its_reason_on_the_first_delivery(
    work: Work, worker: Process
) -> None:
    jobs = {work.submit(task, **kwargs): (reason, kind) for task, kwargs, reason, kind in ENDS}
    for job, (reason, kind) in jobs.items():
        dead = work.until(job, "DEAD")
        (attempt,) = work.attempts(job)
        found = (dead["reason"], attempt["outcome"], attempt["reason"], attempt["exception_type"])
        assert found == (reason, "failed", reason, kind)
        assert attempt["traceback"]
    work.until_letters(len(jobs))
    assert work.result(work.submit("t.add", x=1, y=1)) == 2
    first = next(iter(jobs))
    (line,) = [line for line in worker.log.splitlines() if f"action=dead_lettered job_id={first} " in line]
    assert line.endswith(
        "rejected to the dead-letter exchange action=dead_lettered "
        f"job_id={first} task=t.poison queue=work attempt=1.1 reason=exception"
    )


def test_a_job_whose_next_attempt_can_never_be_published_is_dead(work: Work, worker: Process) -> None:
    # On record by a worker whose topology still had the queue.
    job = str(uuid4())
    work.database.execute(
        "insert into redrive.jobs (id, type, queue, state, attempt, retry_options)"
        " values ($1, 't.add', 'work', 'RETRYING', 2, $2)",
        job, b'{"queue": "gone"}',
    )  # fmt: skip
    work.send("t.add", job, x=1, y=1)
    dead = work.until(job, "DEAD")
    assert (dead["reason"], dead["attempt"]) == ("exception", 2)
    assert "attempt 1.2 cannot be published: UnknownQueueError: no work queue 'gone'" in dead["error"]
    work.until_letters(1)


def test_ignore_is_acked(work: Work, worker: Process) -> None:
    job = work.submit("t.ignore")
    work.until(job, "SUCCEEDED")
    work.until_settled()
    assert work.letters() == []


# What takes threads down is shown in tests/chaos/test_threads.py.
CRASHES = {
    "prefork": [("t.kill", "worker_lost"), ("t.hard", "hard_timeout"), ("t.memory", "memory")],
    "threads": [("t.overdue", "hard_timeout"), ("t.memory", "memory")],
}


def test_crashing_jobs_are_dead_after_three_attempts_and_others_go_on(
    work: Work, worker: Process, pool: str
) -> None:
    jobs = {work.submit(task): reason for task, reason in CRASHES[pool]}
    good = [work.submit("t.add", x=n, y=n) for n in range(10)]
    for job in good:
        work.until(job, "SUCCEEDED", 60)
    for job, reason in jobs.items():
        dead = work.until(job, "DEAD", 60)
        assert (dead["reason"], dead["crashes"], dead["attempt"]) == (reason, 3, 3)
        assert outcomes(work, job) == [("lost", reason)] * 3
    work.until_letters(len(jobs))


def test_a_second_message_of_a_finished_job_is_acked_as_a_duplicate(work: Work, worker: Process) -> None:
    job = work.submit("t.mark", key="once-only")
    assert work.result(job) == "done"
    work.send("t.mark", job, key="once-only")
    worker.wait_for_log("duplicate acked")
    work.until_settled()
    assert len(work.attempts(job)) == 1
    assert work.letters() == []


def test_the_same_effect_key_in_two_jobs_has_one_effect(work: Work, worker: Process) -> None:
    jobs = [work.submit("t.mark", key="shared") for _ in range(5)]
    results = sorted(work.result(job) for job in jobs)
    assert results == ["again: first"] * 4 + ["done"]
    assert work.database.value("select count(*) from redrive.sample_emails") == 1


def test_the_key_for_another_side_is_that_of_the_job_in_every_attempt_and_replay(
    work: Work, worker: Process, tmp_path: Path
) -> None:
    path = tmp_path / "keys"
    jobs = [work.submit("t.keyed", path=str(path)) for _ in range(2)]
    for job in jobs:
        work.until(job, "SUCCEEDED")
    replayed = (
        "update redrive.jobs set state = 'QUEUED', generation = 2, attempt = 1, retries = 0 where id = $1"
    )
    work.database.execute(replayed, jobs[0])
    work.send("t.keyed", jobs[0], Attempt(2, 1), path=str(path))
    eventually(lambda: work.job(jobs[0])["state"] == "SUCCEEDED", 30, "the replay has run")
    assert Counter(path.read_text().split()) == {f"redrive:{jobs[0]}": 4, f"redrive:{jobs[1]}": 2}


def test_a_message_without_a_row_gets_one(work: Work, worker: Process) -> None:
    job = work.submit("t.add", row=False, x=4, y=4)
    assert work.result(job) == 8
    assert work.job(job)["origin"] == "celery"


def test_a_message_ahead_of_its_row_is_believed(work: Work, worker: Process) -> None:
    job = "restored"
    work.database.execute("insert into redrive.jobs (id, type, queue) values ($1, 't.add', 'work')", job)
    work.send("t.add", job, Attempt(2, 3), x=1, y=2)
    assert work.result(job) == 3
    assert (work.job(job)["generation"], work.job(job)["attempt"]) == (2, 3)


def test_an_attempt_that_was_recorded_but_never_published_is_sent_on_as_recorded(
    work: Work, worker: Process
) -> None:
    """With its count, its arguments, and after what is left of its delay."""
    job, delay_s = "behind", 20.0
    work.database.execute(
        "insert into redrive.jobs (id, type, queue, state, attempt, retries, retry_arguments) "
        "values ($1, 't.flaky', 'work', 'RETRYING', 2, 3, $2)",
        job, b'[[], {"fail": 0}, {}]',
    )  # fmt: skip
    work.database.execute(
        "insert into redrive.attempts"
        " (job_id, generation, attempt, claim, worker, outcome, ended_at, delay_ms)"
        " values ($1, 1, 1, $2, 'lost', 'retry', now(), $3)",
        job, uuid4(), int(delay_s * 1000),
    )  # fmt: skip
    work.send("t.flaky", job, Attempt(1, 1), fail=99)
    assert work.result(job) == {"retries": 3, "attempt": 2}
    first, second = work.attempts(job)
    assert (second["started_at"] - first["ended_at"]).total_seconds() >= delay_s * TIME_SCALE


def test_an_async_task_runs_and_has_its_effect_once(work: Work, worker: Process) -> None:
    jobs = [work.submit("t.coroutine", key=f"async-{n}") for n in range(3)]
    for job in jobs:
        assert work.result(job) == {"id": job, "retries": 0}
    assert work.database.value("select count(*) from redrive.effects") == 3


def test_countdown_waits_in_the_broker_and_not_in_the_worker(work: Work, worker: Process) -> None:
    from datetime import UTC, datetime, timedelta

    from topology.messages import task_message
    from topology.wire import RawProperties, split

    job = "later"
    message = task_message(job, "t.add", {"x": 1, "y": 1})
    due = datetime.now(UTC) + timedelta(seconds=2)
    properties = split(message.properties).with_header("eta", due.isoformat())
    work.publish(message.body, RawProperties(properties.encode()))
    assert work.result(job) == 2
    started = work.attempts(job)[0]["started_at"]
    assert started >= due
