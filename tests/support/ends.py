"""A worker of `ending_jobs`, a dead-letter consumer, and what they have on record of each end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import asyncpg

from storage.attempts import of_jobs
from tests.support import background
from tests.support.processes import Process, console_script
from tests.support.waiting import eventually
from tests.support.work import Work

FINAL = ("SUCCEEDED", "DEAD")


@dataclass(frozen=True)
class Case:
    """A job, and what becomes of it. `reason` and `exception` are None for one that succeeds."""

    name: str
    task: str
    kwargs: dict[str, Any]
    reason: str | None
    exception: str | None = None
    attempts: int = 1


@dataclass(frozen=True)
class End:
    """What is on record of a job. `attempts` as every surface shows them, through JSON and back."""

    job: dict[str, Any]
    attempts: list[dict[str, Any]]
    letters: list[dict[str, Any]]


@dataclass
class Ends(Work):
    """`Work` with the tasks of `ending_jobs` and a dead-letter consumer."""

    module: str = "tests.support.ending_jobs"

    def start_consumer(self) -> Process:
        settings = self.settings | {"REDRIVE_MANAGEMENT_URL": self.vhost.management_url}
        process = self.processes.start(
            "consumer", console_script("dlq_consumer.cli:main", "consume"), settings
        )
        process.wait_for_log("draining work.dlq", 40)
        return process

    def until_ended(self, job_id: str, deadline_s: float = 60) -> End:
        """The job in a final state, with its letter stored if it is dead."""

        def ended() -> End:
            job = self.job(job_id)
            assert job["state"] in FINAL, job
            letters = self.database.fetch(
                "select * from redrive.dead_letters where job_id = $1 order by id", job_id
            )
            assert bool(letters) == (job["state"] == "DEAD"), "its letter is not stored yet"
            return End(job, self.shown_attempts(job_id), letters)

        return eventually(ended, deadline_s, f"job {job_id} has ended")

    def shown_attempts(self, job_id: str) -> list[dict[str, Any]]:
        """The attempts as the API and `dlq show` tell them: valid JSON, or this raises."""

        async def read() -> list[dict[str, Any]]:
            connection = await asyncpg.connect(self.database.url, timeout=10)
            try:
                found = await of_jobs(connection, [job_id])
            finally:
                await connection.close()
            return [attempt.as_json() for attempt in found.get(job_id, ())]

        text = json.dumps(background.run(read()), allow_nan=False)
        shown: list[dict[str, Any]] = json.loads(text.encode())
        return shown
