"""Two workers restarted in turn, twice, under constant load: nothing is lost and nothing is done twice."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.support.databases import Database
from tests.support.processes import Processes
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import Work

APP = "tests.support.stopping_jobs"
ROUNDS = 2
PAUSE_S = 0.05
UNDONE = "select count(*) from redrive.jobs where state <> 'SUCCEEDED'"


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    # A lease that nobody here could wait for: what is handed back runs at once.
    return Work(vhost, database, processes, {"REDRIVE_WORKER_LEASE_S": "600"})


class Load:
    """Submits until it is told to stop."""

    def __init__(self, work: Work, path: Path) -> None:
        self.jobs: list[str] = []
        self._work, self._path = work, path
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._over.wait(PAUSE_S):
            # A fifth of them takes a second: some always run when a worker is stopped.
            seconds = 1.0 if len(self.jobs) % 5 == 0 else 0.02
            self.jobs.append(self._work.submit("t.work_on", path=str(self._path), seconds=seconds))


def test_a_rolling_restart_under_load_loses_and_doubles_nothing(work: Work, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    workers = [work.start(app=APP), work.start(app=APP)]
    with Load(work, path) as load:
        eventually(lambda: len(load.jobs) >= 20, 60, "there is load")
        for _ in range(ROUNDS):
            for place in range(len(workers)):
                assert workers[place].terminate(40) == 0
                workers[place] = work.start(app=APP)
    assert not any("action=handed_back" in worker.log for worker in workers)
    eventually(lambda: work.database.value(UNDONE) == 0, 90, "every job has succeeded")
    runs = Counter(line.split()[0] for line in path.read_text().splitlines())
    assert runs == dict.fromkeys(load.jobs, 1)
    assert work.database.value("select count(*) from redrive.sample_emails") == len(load.jobs)
    assert work.database.value("select count(*) from redrive.attempts where attempt > 1") == 0
    assert work.database.value("select count(*) from redrive.jobs where crashes > 0") == 0
    assert work.letters() == []
    work.until_settled()
