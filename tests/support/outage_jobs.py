"""Jobs whose queue gives a consumer a few seconds only."""

from __future__ import annotations

import os
import time
from typing import Any

from tests.support.gates import wait_for
from topology.spec import Ladder, Topology, WorkQueue
from workers.celery_app import Redrive
from workers.task import RedriveTask

CONSUMER_TIMEOUT_S = 8.0
TOPOLOGY = Topology(
    (
        WorkQueue(
            "work",
            ladder=Ladder(tick_ms=100, steps=10),
            prefetch=4,
            consumer_timeout_s=CONSUMER_TIMEOUT_S,
            time_limit_s=6,
        ),
    )
)
SETTINGS = {
    "REDRIVE_TOPOLOGY": "tests.support.outage_jobs:TOPOLOGY",
    "REDRIVE_WORKER_TIME_LIMIT_S": "6",
    "REDRIVE_WORKER_SOFT_TIME_LIMIT_S": "5",
}
app = Redrive("outages")
MARK = "INSERT INTO redrive.sample_emails (email_key, state, job_id) VALUES ($1, 'sent', $2)"


@app.task(bind=True, name="o.run", max_retries=3)
def run(self: RedriveTask, path: str, end: str = "done", seconds: float = 1.0) -> Any:
    """A line in a file for each run; no word to Postgres."""
    with open(path, "a") as file:
        file.write(f"{self.request.id} {self.attempt_number} {os.getpid()}\n")
    time.sleep(seconds)
    match end:
        case "fail":
            raise ZeroDivisionError("for ever")
        case "retry":
            raise self.retry(countdown=0.1, args=[], kwargs={"path": path, "seconds": 0, "end": "again"})
        case "large":
            return "x" * 100_000
    return end


@app.task(bind=True, name="o.effect", max_retries=3)
def effect(self: RedriveTask, path: str, seconds: float = 1.0, gate: str = "") -> str:
    """Two lines in a file for each run, its begin and its end, between which it waits for the file `gate`;
    and an effect that is another one in each."""
    note(path, self.request.id, "begin")
    wait_for(gate)
    time.sleep(seconds)
    note(path, self.request.id, "end")
    with self.once(f"{self.request.id} {self.claim}") as tx:
        tx.execute(MARK, str(self.claim), self.request.id)
    return "done"


def note(path: str, job: str, what: str) -> None:
    with open(path, "a") as file:
        file.write(f"{job} {what} {os.getpid()}\n")
