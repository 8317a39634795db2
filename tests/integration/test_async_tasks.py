"""`async def` tasks, and the database in tasks, in a worker with one process or thread of each pool."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Process
from tests.support.shared import Places, Shared
from tests.support.waiting import eventually
from tests.support.work import Work, shared_work

APP = "tests.support.async_jobs"
FORMS = ("plain", "partial", "decorated", "decorated_auto", "object", "shared", "based", "based_static")


@pytest.fixture(scope="module", params=["prefork", "threads"])
def pool(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def shared(places: Places, pool: str) -> Iterator[Shared[Work]]:
    with shared_work(places, "--pool", pool, app=APP, concurrency=1) as shared:
        yield shared


@pytest.fixture
def work(shared: Shared[Work], request: pytest.FixtureRequest) -> Iterator[Work]:
    with shared.lent(request.node) as work:
        yield work


def test_every_form_of_coroutine_is_run(work: Work, worker: Process) -> None:
    jobs = {form: work.submit(f"a.{form}", x=21) for form in FORMS}
    assert {form: work.result(job) for form, job in jobs.items()} == dict.fromkeys(FORMS, 42)
    assert work.result(work.submit("a.calls", x=21)) == 43


def test_ends_of_a_coroutine_are_those_of_a_plain_task(work: Work, worker: Process) -> None:
    ends = {
        work.submit("a.reject"): ("rejected", "celery.exceptions.Reject"),
        work.submit("a.exit"): ("exception", "SystemExit"),
        work.submit("a.inner_exit"): ("exception", "SystemExit"),
        work.submit("a.self_cancelled"): ("exception", "workers.errors.WorkerError"),
        work.submit("a.wrong_form"): ("exception", "RuntimeError"),
        work.submit("a.auto", fail=9): ("exhausted", "tests.support.worker_jobs.Flaky"),
    }
    ignored = work.submit("a.ignore")
    for job, (reason, kind) in ends.items():
        assert work.until(job, "DEAD")["reason"] == reason
        assert work.attempts(job)[-1]["exception_type"] == kind
    work.until(ignored, "SUCCEEDED")
    work.until_letters(len(ends))


def test_a_coroutine_retries_by_hand_and_by_itself(work: Work, worker: Process) -> None:
    by_hand, by_itself = work.submit("a.retry"), work.submit("a.auto", fail=1)
    assert work.result(by_hand) == {"id": by_hand, "attempt": 3}
    assert work.result(by_itself) == 1
    assert [attempt["outcome"] for attempt in work.attempts(by_itself)] == ["retry", "succeeded"]


def test_a_soft_time_limit_cancels_a_coroutine_which_cleans_up(
    work: Work, worker: Process, tmp_path: Path
) -> None:
    job = work.submit("a.cleans_up", path=str(tmp_path / "log"))
    assert work.until(job, "DEAD")["reason"] == "soft_timeout"
    assert (tmp_path / "log").read_text() == "cleaned up\n"
    assert "asyncio.sleep(30)" in work.attempts(job)[0]["traceback"], "it says where the coroutine was"
    assert work.result(work.submit("a.saves")) == "saved in time"


@pytest.mark.parametrize("end", ["result", "retry", "soft"])
def test_nothing_that_a_coroutine_left_behind_runs_on_beside_the_next_job(
    work: Work, worker: Process, tmp_path: Path, end: str
) -> None:
    job = work.submit("a.leaves", path=str(tmp_path / "log"), end=end)
    work.until(job, "DEAD" if end == "soft" else "SUCCEEDED")
    assert work.result(work.submit("a.tasks")) == 1
    assert "action=tasks_left_behind" in worker.log
    work.result(work.submit("a.plain", x=1))
    assert not (tmp_path / "log").exists()


def test_progress_and_context_of_a_coroutine(work: Work, worker: Process) -> None:
    job = work.submit("a.progress")
    work.until(job, "SUCCEEDED")
    assert json.loads(work.job(job)["progress"]) == {"state": "PROGRESS", "meta": {"number": 49}}
    job = work.submit("a.context")
    first, second, claim = work.result(job)
    assert first == second == f"here {job} {claim}"


def test_plain_and_async_tasks_use_the_database_each_in_its_form(work: Work, worker: Process) -> None:
    assert work.result(work.submit("s.effect", key="plain")) == 2
    assert work.result(work.submit("a.effect", key="async")) == 2
    assert work.database.value("select count(*) from redrive.sample_emails") == 2, "one was rolled back"


def test_a_soft_time_limit_in_the_database_loses_no_connection(work: Work, worker: Process) -> None:
    hit = [work.submit(f"{form}.once_sleeps", key=f"{form}{n}") for form in "as" for n in range(2)]
    hit += [work.submit("s.waits", how=how) for how in ("fetch", "transaction")]
    left = [work.submit("s.leaves", key=f"left{n}") for n in range(3)]  # over the pool's size
    for job in hit:
        assert work.until(job, "DEAD")["reason"] == "soft_timeout"
    for job in left:
        work.until(job, "SUCCEEDED")
    good = [work.submit(f"{'as'[n % 2]}.effect", key=f"k{n}") for n in range(20)]
    for job in good:
        assert work.result(job) == 2
    assert work.database.value("select count(*) from redrive.sample_emails") == len(good)
    sessions = work.database.fetch(
        "select state from pg_stat_activity where datname = current_database()"
        " and application_name like 'redrive-task%'"
    )
    assert len(sessions) <= 2
    assert {session["state"] for session in sessions} <= {"idle"}


@pytest.mark.parametrize("form", ["a", "s"])
def test_a_running_job_is_revoked(work: Work, worker: Process, tmp_path: Path, form: str) -> None:
    import sys

    log = tmp_path / "log"
    job = work.submit(f"{form}.long", path=str(log))
    eventually(log.exists, 20, "it runs")
    script = f"from {APP} import app; app.control.revoke({job!r}, terminate=True)"
    done = work.processes.start("revoke", [sys.executable, "-c", script], work.settings)
    assert done.wait(30) == 0, done.tail()
    assert work.until(job, "DEAD")["reason"] == "revoked"
    work.processes.started.remove(done)
    assert work.result(work.submit("a.plain", x=1)) == 2
    work.until_letters(1)
