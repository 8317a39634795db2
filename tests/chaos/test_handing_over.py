"""Postgres is away for longer than the broker waits for an ack: a run is recorded all the same, and once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.databases import Database
from tests.support.outage_jobs import SETTINGS
from tests.support.processes import Process, Processes
from tests.support.proxy import TcpProxy
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import Work
from topology.headers import ATTEMPT, OUTCOME
from topology.messages import task_message
from topology.wire import RawProperties, split

APP = "tests.support.outage_jobs"


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes, dict(SETTINGS))


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def runs(path: Path, job: str) -> list[str]:
    """The attempts that ran."""
    return [line.split()[1] for line in lines(path) if line.startswith(job)]


def outcomes(work: Work, job: str) -> list[str]:
    return [attempt["outcome"] for attempt in work.attempts(job)]


def through_an_outage(
    work: Work, through: TcpProxy, path: Path, ends: list[str]
) -> tuple[Process, dict[str, str]]:
    """A worker that runs a job for each end, and loses Postgres meanwhile."""
    worker = work.start(app=APP, concurrency=len(ends), REDRIVE_DATABASE_URL=through.url)
    work.until(work.submit("o.run", path=str(path), seconds=0), "SUCCEEDED")  # with its full window
    jobs = {end: work.submit("o.run", path=str(path), end=end, seconds=3.0) for end in ends}
    eventually(lambda: len(lines(path)) == 1 + len(ends), 30, "all run")
    through.refuse()
    return worker, jobs


def test_outcomes_go_on_with_their_messages_and_another_worker_records_them(
    work: Work, proxy: Callable[..., TcpProxy], tmp_path: Path
) -> None:
    path, through = tmp_path / "runs", proxy(work.database.url)
    worker, jobs = through_an_outage(work, through, path, ["done", "fail", "retry", "large"])
    eventually(lambda: worker.log.count("action=handed_over") == 3, 60, "three went on")
    assert worker.log.count("action=too_large") == 1
    worker.kill_group()
    second = work.start(app=APP, concurrency=2)
    assert work.result(jobs["done"]) == "done"
    dead = work.until(jobs["fail"], "DEAD")
    assert (dead["reason"], dead["error"]) == ("exception", "ZeroDivisionError: for ever")
    assert work.result(jobs["retry"]) == "again"
    assert outcomes(work, jobs["retry"]) == ["retry", "succeeded"]
    assert outcomes(work, jobs["done"]) == ["succeeded"]
    assert [runs(path, jobs[end]) for end in ("done", "fail", "retry")] == [["1.1"], ["1.1"], ["1.1", "1.2"]]
    ((properties, _),) = work.until_letters(1)
    assert properties.headers["id"] == jobs["fail"]
    # Too large for a header: it runs again, which `once` is for.
    work.until(jobs["large"], "SUCCEEDED", 60)
    assert second.exit_code is None
    work.until_settled(30)


def test_a_worker_that_stops_while_postgres_is_away_leaves_its_outcomes_in_the_broker(
    work: Work, proxy: Callable[..., TcpProxy], tmp_path: Path
) -> None:
    path, through = tmp_path / "runs", proxy(work.database.url)
    worker, jobs = through_an_outage(work, through, path, ["done"])
    worker.wait_for_log("consuming nothing")
    assert worker.terminate(40) == 0
    assert worker.log.count("action=handed_over") == 1
    work.start(app=APP)
    assert work.result(jobs["done"]) == "done"
    assert runs(path, jobs["done"]) == ["1.1"]
    assert (work.job(jobs["done"])["crashes"], outcomes(work, jobs["done"])) == (0, ["succeeded"])


def test_an_outcome_that_a_stranger_wrote_completes_nothing(work: Work, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    work.start(app=APP)
    first = work.submit("o.run", path=str(path), seconds=0, end="retry")
    work.until(first, "SUCCEEDED")
    used = work.attempts(first)[0]["claim"]
    for claim, end in ((uuid4(), "real"), (used, "real"), ("", "real")):
        job = str(uuid4())
        work.database.execute(
            "insert into redrive.jobs (id, type, queue, state) values ($1, 'o.run', 'work', 'QUEUED')", job
        )
        message = task_message(job, "o.run", {"path": str(path), "end": end, "seconds": 0})
        forged = f'{{"version": 1, "claim": "{claim}", "kind": "succeeded", "outcome": {{"result": "1"}}}}'
        properties = split(message.properties).with_header(OUTCOME, forged)
        work.publish(message.body, RawProperties(properties.encode()))
        assert work.result(job) == "real"
        assert runs(path, job) == ["1.1"]


def test_a_message_with_an_outcome_that_is_on_record_is_a_duplicate(work: Work, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    worker = work.start(app=APP)
    job = work.submit("o.run", path=str(path), seconds=0)
    work.until(job, "SUCCEEDED")
    claim = work.attempts(job)[0]["claim"]
    message = task_message(job, "o.run", {"path": str(path)})
    header = f'{{"version": 1, "claim": "{claim}", "kind": "dead", "outcome": {{"reason": "exception"}}}}'
    properties = split(message.properties).with_header(OUTCOME, header).with_header(ATTEMPT, "1.1")
    work.publish(message.body, RawProperties(properties.encode()))
    work.until_settled(30)
    assert (work.job(job)["state"], runs(path, job), work.letters()) == ("SUCCEEDED", ["1.1"], [])
    assert worker.exit_code is None


def test_a_job_that_has_run_does_not_expire_on_its_way(work: Work, tmp_path: Path) -> None:
    path, job, claim = tmp_path / "runs", str(uuid4()), uuid4()
    work.database.execute(
        "insert into redrive.jobs (id, type, queue, state, claim, worker, lease_until, lease_cap)"
        " values ($1, 'o.run', 'work', 'RUNNING', $2, 'gone', now() + '1 h', now() + '1 h')",
        job, claim,
    )  # fmt: skip
    work.database.execute(
        "insert into redrive.attempts (job_id, generation, attempt, claim, worker)"
        " values ($1, 1, 1, $2, 'gone')",
        job, claim,
    )  # fmt: skip
    message = task_message(job, "o.run", {"path": str(path)})
    header = f'{{"version": 1, "claim": "{claim}", "kind": "succeeded", "outcome": {{"result": "7"}}}}'
    sent = split(message.properties).with_header(OUTCOME, header).with_header(ATTEMPT, "1.1")
    sent = sent.with_header("expires", "2001-01-01T00:00:00+00:00")
    work.start(app=APP)
    work.publish(message.body, RawProperties(sent.encode()))
    assert work.result(job) == 7
    work.until_settled(30)
    assert (outcomes(work, job), runs(path, job), work.letters()) == (["succeeded"], [], [])
