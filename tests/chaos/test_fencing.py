"""A job runs in one place at a time, and whoever lost it can neither complete it nor keep an effect of it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.databases import Database
from tests.support.processes import Process, Processes
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import Work

APP = "tests.support.outage_jobs"


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes)


def notes(path: Path, job: str) -> list[str]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.split()[1] for line in lines if line.startswith(job)]


def effects(work: Work, job: str) -> int:
    return int(work.database.value("select count(*) from redrive.sample_emails where job_id = $1", job))


def freeze(worker: Process, number: signal.Signals) -> None:
    os.killpg(worker.pid, number)


def close_connections(work: Work) -> None:
    """As the broker does with a client whose heartbeats it misses. The management API is up to 5 s late."""

    def closed() -> bool:
        for opened in work.vhost.management.get(f"/api/vhosts/{work.vhost.vhost}/connections").json():
            work.vhost.management.delete(f"/api/connections/{opened['name']}")
        return work.depth("work") == 1

    eventually(closed, 30, "its message waits for another worker", every_s=0.5)


def test_many_deliveries_of_one_job_never_run_at_once(work: Work, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    workers = [work.start(app=APP, concurrency=2) for _ in range(2)]
    for _ in workers:
        work.until(work.submit("o.effect", path=str(path), seconds=0), "SUCCEEDED")
    jobs = [work.submit("o.effect", path=str(path), seconds=0.5) for _ in range(4)]
    for _ in range(8):
        for job in jobs:
            work.send("o.effect", job, path=str(path), seconds=0.5)
    for job in jobs:
        assert work.result(job) == "done"
    work.until_settled(60)
    for job in jobs:
        assert notes(path, job) == ["begin", "end"], "one run, and no other beside or after it"
        assert [attempt["outcome"] for attempt in work.attempts(job)] == ["succeeded"]
        assert effects(work, job) == 1
    assert work.letters() == []


def test_a_worker_that_was_frozen_past_its_lease_completes_nothing(work: Work, tmp_path: Path) -> None:
    path, gate = tmp_path / "notes", tmp_path / "gate"
    zombie = work.start(app=APP)
    job = work.submit("o.effect", path=str(path), seconds=0, gate=str(gate))
    eventually(lambda: work.job(job)["lease_cap"], 20, "it runs, and that is on record")
    freeze(zombie, signal.SIGSTOP)
    try:
        close_connections(work)
        gate.touch()
        work.start(app=APP)
        assert work.result(job) == "done"
        done = work.job(job)
    finally:
        freeze(zombie, signal.SIGCONT)
    eventually(lambda: notes(path, job).count("end") == 2, 30, "the frozen run goes on to its end")
    zombie.wait_for_log("ended, but another worker has it", 60)
    assert work.job(job) == done, "nothing of the job changed"
    assert effects(work, job) == 1, "its effect was rolled back"
    assert [attempt["outcome"] for attempt in work.attempts(job)] == ["lost", "succeeded"]
    work.until_settled(60)
    assert work.letters() == []
    work.until(work.submit("o.effect", path=str(path), seconds=0), "SUCCEEDED")


def test_a_killed_workers_job_runs_again_within_a_minute_with_the_default_lease(
    work: Work, tmp_path: Path
) -> None:
    path = tmp_path / "notes"
    for name in ("REDRIVE_WORKER_LEASE_S", "REDRIVE_WORKER_RENEW_S"):
        del work.settings[name]
    workers = [work.start(app=APP) for _ in range(2)]
    job = work.submit("o.effect", path=str(path), seconds=4.0)
    eventually(lambda: work.job(job)["lease_cap"], 20, "it runs, and that is on record")
    name = str(work.job(job)["worker"])
    next(worker for worker in workers if f"{name} ready" in worker.log).kill_group()
    killed = time.monotonic()
    eventually(lambda: notes(path, job).count("begin") == 2, 90, "it runs again")
    assert time.monotonic() - killed < 60
    assert work.result(job) == "done"
    assert [attempt["outcome"] for attempt in work.attempts(job)] == ["lost", "succeeded"]
