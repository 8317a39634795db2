"""What prefork answers by killing a process, a threads pool must answer without."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.databases import Database
from tests.support.processes import Process, Processes
from tests.support.proxy import TcpProxy
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import Work, runs
from topology import exits

THREADS = ("--pool", "threads")
ASYNC = "tests.support.async_jobs"


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes)


def ended_or_dead(work: Work, worker: Process, job: str) -> bool:
    return worker.exit_code is not None or bool(work.job(job)["state"] == "DEAD")


def test_a_thread_that_does_not_come_back_ends_its_worker_which_finishes_the_rest(
    work: Work, tmp_path: Path
) -> None:
    path = tmp_path / "runs"
    worker = work.start(*THREADS, concurrency=3)
    work.result(work.submit("t.add", x=1, y=1))  # from now on with the full window
    hangs = work.submit("t.hangs", key="zombie")
    beside = work.submit("t.mark", key="beside", seconds=9.0, path=str(path))
    crashed = eventually(
        lambda: work.attempts(hangs)[0]["reason"], 20, "its attempt ends", ignoring=(IndexError,)
    )
    assert crashed == "hard_timeout"
    assert worker.exit_code is None, "at once, not when the thread is given up"
    assert worker.wait(40) == exits.RESTART
    assert work.result(beside) == "done"
    assert "action=thread_given_up given_up=1 threads=3" in worker.log
    assert work.job(hangs)["crashes"] >= 1
    assert runs(path) == Counter([beside])


def test_a_thread_past_its_hard_limit_can_neither_complete_its_job_nor_have_an_effect(
    work: Work, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    worker = work.start(*THREADS, concurrency=2)
    job = work.submit("t.zombie", key="late", path=str(path))
    assert work.until(job, "DEAD", 60)["reason"] == "hard_timeout"
    eventually(lambda: worker.log.count("action=thread_back") == 3, 30, "its threads come back")
    assert work.effects() == 0
    # Refused at the commit, or interrupted before it.
    assert set(path.read_text().split()) <= {"LostClaimError", "Ended"}
    assert worker.exit_code is None
    assert work.result(work.submit("t.add", x=1, y=1)) == 2, "they are used again"


def test_a_job_whose_threads_never_come_back_is_dead_at_the_bound(work: Work) -> None:
    worker = work.start(*THREADS, concurrency=4)
    bad = work.submit("t.hangs", key="k")
    good = [work.submit("t.mark", key=f"k{n}") for n in range(6)]
    assert work.until(bad, "DEAD", 40)["reason"] == "hard_timeout"
    assert work.job(bad)["crashes"] == 3
    for job in good:
        work.until(job, "SUCCEEDED")
    work.until_letters(1)
    assert worker.wait(40) == exits.RESTART


@pytest.mark.parametrize(("pool", "code"), [("prefork", None), ("threads", exits.RESTART)])
def test_a_coroutine_that_ignores_both_limits_is_dead_at_the_bound(
    work: Work, pool: str, code: int | None
) -> None:
    worker = work.start("--pool", pool, app=ASYNC, concurrency=4)
    bad = work.submit("a.stubborn")
    assert work.until(bad, "DEAD", 40)["reason"] == "hard_timeout"
    assert work.job(bad)["crashes"] == 3
    if code is None:
        assert work.result(work.submit("a.tasks")) == 1
        assert worker.exit_code is None
    else:
        assert worker.wait(40) == code


def test_a_job_that_takes_the_process_down_is_dead_at_the_bound_and_no_other(work: Work) -> None:
    good = [work.submit("t.mark", key=f"k{n}") for n in range(6)]
    bad = work.submit("t.kill")
    for _ in range(8):
        worker = work.start(*THREADS, ready=False)
        eventually(partial(ended_or_dead, work, worker, bad), 60, "the worker ends, or the job is dead")
        if work.job(bad)["state"] == "DEAD":
            break
        assert worker.exit_code == -signal.SIGKILL
    for job in good:
        work.until(job, "SUCCEEDED", 60)
    assert work.job(bad)["reason"] == "worker_lost"
    assert work.effects() == len(good)
    work.until_letters(1)


def test_a_stop_finishes_what_runs_and_gives_back_the_rest(work: Work, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    first = work.start(*THREADS)
    jobs = [work.submit("t.mark", key=f"k{n}", seconds=0.5, path=str(path)) for n in range(12)]
    eventually(lambda: len(runs(path)) >= 2, 20, "two jobs run")
    assert first.terminate(40) == 0
    work.start(*THREADS)
    for job in jobs:
        assert work.result(job) == "done"
    assert set(runs(path).values()) == {1}, "none ran twice"
    assert all(work.job(job)["crashes"] == 0 for job in jobs)


def test_a_cold_stop_gives_back_what_it_ends(work: Work, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    first = work.start(*THREADS)
    job = work.submit("t.steps", key="k", path=str(path))
    eventually(lambda: runs(path)[job] == 1, 20, "the job runs")
    first.send(signal.SIGQUIT)
    first.wait(40)
    work.start(*THREADS)
    work.until(job, "SUCCEEDED", 60)
    assert work.job(job)["crashes"] == 0
    assert work.effects() == 1


def test_lost_connections_are_survived_and_nothing_runs_twice(
    work: Work, proxy: Callable[..., TcpProxy], tmp_path: Path
) -> None:
    path = tmp_path / "runs"
    through = proxy(work.vhost.amqp_url)
    worker = work.start(*THREADS, REDRIVE_AMQP_URL=through.url)
    jobs = [work.submit("t.mark", key=f"k{n}", seconds=0.3, path=str(path)) for n in range(20)]
    eventually(lambda: len(runs(path)) >= 4, 20, "jobs run")
    through.refuse()
    eventually(lambda: worker.log.count("Trying again in") >= 1, 30, "the broker is away")
    through.resume()
    eventually(lambda: len(runs(path)) >= 10, 40, "jobs run again")
    work.database.cut_connections()
    for job in jobs:
        work.until(job, "SUCCEEDED", 60)
    assert work.effects() == len(jobs)
    assert {job: work.job(job)["crashes"] for job in jobs} == dict.fromkeys(jobs, 0)
    assert work.letters() == []
    assert worker.exit_code is None


def test_a_lease_is_renewed_while_its_thread_runs(work: Work, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    work.start(*THREADS, REDRIVE_WORKER_LEASE_S="3", REDRIVE_WORKER_RENEW_S="0.5")
    job = work.submit("t.mark", key="k", seconds=5.0, path=str(path))
    eventually(lambda: runs(path)[job] == 1, 20, "the job runs")
    work.start(*THREADS)
    work.send("t.mark", job, key="k", seconds=5.0, path=str(path))
    assert work.result(job) == "done"
    assert runs(path)[job] == 1
    assert work.job(job)["crashes"] == 0


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_children_share_nothing_with_a_pool_made_at_import(work: Work, pool: str) -> None:
    worker = work.start("--pool", pool, app=ASYNC, concurrency=4)
    work.result(work.submit("a.plain", x=1))  # from now on with the full window
    jobs = [work.submit("a.backends") for _ in range(50)]
    seen = [work.result(job) for job in jobs]
    owners: dict[int, set[int]] = {}
    for process, *backends in seen:
        for backend in backends:
            owners.setdefault(backend, set()).add(process)
    assert all(len(processes) == 1 for processes in owners.values()), "a connection is one process's"
    assert (len({process for process, *_ in seen}) > 1) == (pool == "prefork")
    assert work.letters() == []
    assert "attached to a different loop" not in worker.log
    assert os.getpid() not in {process for process, *_ in seen}
