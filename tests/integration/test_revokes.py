"""A replay is somebody's decision after a revoke: only a revoke that comes after it stops the job again."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from tests.support.ends import Ends
from tests.support.processes import Process, clean_environment, console_script
from tests.support.shared import Places
from tests.support.waiting import eventually
from topology.messages import task_message
from topology.wire import RawProperties, split

WAITS = "e.waits_past_its_expiry"  # runs, then waits on the ladder


@dataclass
class Revoked:
    """One worker with a file of revokes, and a dead-letter consumer."""

    ends: Ends
    worker: Process
    file: Path

    def revoke(self, job_id: str, **options: Any) -> None:
        app = Celery(broker=self.ends.vhost.amqp_url)
        with app.connection_for_write() as connection:
            app.control.revoke(job_id, connection=connection, **options)
        if not options:
            self.worker.wait_for_log(f"Tasks flagged as revoked: {job_id}")

    def until_revoked(self, job_id: str, generation: int = 1) -> None:
        eventually(lambda: self._is_revoked(job_id, generation), 40, f"job {job_id} is revoked")

    def _is_revoked(self, job_id: str, generation: int) -> bool:
        job = self.ends.job(job_id)
        letters = "select count(*) from redrive.dead_letters where job_id = $1 and generation = $2"
        stored = bool(self.ends.database.value(letters, job_id, generation) == 1)
        return stored and (job["state"], job["reason"]) == ("DEAD", "revoked")

    def replay(self, job_id: str) -> None:
        newest = "select max(id) from redrive.dead_letters where job_id = $1"
        letter = str(self.ends.database.value(newest, job_id))
        done = subprocess.run(
            console_script("dlq_consumer.cli:main", "replay", "--no-wait", letter),
            env=clean_environment(self.ends.settings), cwd=self.ends.processes.directory,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def dead_by_a_revoke(self, task: str, **kwargs: Any) -> str:
        """Told of the revoke before the job comes."""
        job = str(uuid.uuid4())
        self.revoke(job)
        self.ends.submit(task, job, **kwargs)
        self.until_revoked(job)
        return job

    def restart(self) -> None:
        assert self.worker.terminate(40) == 0
        self.worker = self.ends.start("--statedb", str(self.file))


@pytest.fixture(scope="module")
def revoked(places: Places, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Revoked]:
    with places.fresh() as (vhost, database, processes):
        ends = Ends(vhost, database, processes)
        ends.start_consumer()
        file = tmp_path_factory.mktemp("revokes") / "state"
        yield Revoked(ends, ends.start("--statedb", str(file)), file)


def test_a_replay_of_a_job_that_was_ended_by_a_revoke_runs_at_the_same_worker(revoked: Revoked) -> None:
    job = revoked.ends.submit("e.fine", seconds=4.0)
    eventually(lambda: revoked.ends.job(job)["lease_cap"], 20, "it runs, and that is on record")
    revoked.revoke(job, terminate=True)
    revoked.until_revoked(job)
    revoked.replay(job)
    assert revoked.ends.result(job) == "fine"


def test_a_replay_of_a_job_that_was_revoked_by_its_stamp_runs_and_a_later_revoke_ends_it(
    revoked: Revoked,
) -> None:
    ends = revoked.ends

    def revoke_stamp() -> None:
        app = Celery(broker=ends.vhost.amqp_url)
        with app.connection_for_write() as connection:
            answers = app.control.revoke_by_stamped_headers(
                {"customer": "seven"}, connection=connection, reply=True, timeout=20, limit=1
            )
        assert answers

    def stamped(task: str) -> str:
        job = str(uuid.uuid4())
        message = task_message(job, task, {})
        marked = split(message.properties).with_header("stamped_headers", ["customer"])
        marked = marked.with_header("stamps", {"customer": ["seven"]})
        ends.publish(message.body, RawProperties(marked.encode()))
        return job

    revoke_stamp()
    runs, waits = stamped("e.fine"), stamped(WAITS)
    for job in (runs, waits):
        revoked.until_revoked(job)
        revoked.replay(job)
    assert ends.result(runs) == "fine"
    ends.until(waits, "RETRYING")
    revoke_stamp()
    revoked.until_revoked(waits, 2)


def test_a_revoke_after_the_replay_ends_the_job_again(revoked: Revoked) -> None:
    job = revoked.dead_by_a_revoke(WAITS)
    revoked.replay(job)
    revoked.ends.until(job, "RETRYING")
    revoked.revoke(job)
    revoked.until_revoked(job, 2)


def test_a_restarted_worker_still_knows_which_revokes_came_after_a_replay(revoked: Revoked) -> None:
    ends = revoked.ends
    before, after = revoked.dead_by_a_revoke("e.fine"), revoked.dead_by_a_revoke(WAITS)
    revoked.replay(after)
    ends.until(after, "RETRYING")
    revoked.revoke(after)
    revoked.restart()
    revoked.replay(before)
    assert ends.result(before) == "fine"
    revoked.until_revoked(after, 2)
