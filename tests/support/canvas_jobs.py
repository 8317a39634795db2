"""Tasks of the canvas tests: what ran is seen in the jobs' rows and, for plain functions, in a file."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from celery.exceptions import Reject

from tests.support.gates import wait_for
from tests.support.worker_jobs import TOPOLOGY
from workers.celery_app import Redrive
from workers.task import RedriveTask

__all__ = ["TOPOLOGY"]

app = Redrive("canvas")
# A broker that is away is known to be so at once.
app.conf.task_publish_retry_policy = {"max_retries": 1, "interval_start": 0.1, "interval_max": 0.1}
if "CANVAS_RESULT_BACKEND" in os.environ:
    app.conf.result_backend = os.environ["CANVAS_RESULT_BACKEND"]


class Broken(Exception):
    """What is wrong until somebody repairs it."""


@app.task(name="c.add")
def add(x: int, y: int) -> int:
    return x + y


@app.task(name="c.echo")
def echo(*values: Any) -> Any:
    return values


@app.task(name="c.collect")
def collect(values: Any) -> Any:
    return values


@app.task(name="c.needs")
def needs(path: str, value: Any) -> Any:
    """Fails until there is a file."""
    if not os.path.exists(path):
        raise Broken(f"no {os.path.basename(path)}")
    return value


@app.task(name="c.after")
def after(before: Any, path: str, value: Any) -> Any:
    """`needs`, as a link of a chain."""
    return [before, needs.run(path, value)]


@app.task(name="c.errback")
def errback(job_id: str) -> str:
    return job_id


@app.task(name="c.noted")
def noted(request: Any, exc: Any, traceback: Any, path: str = "") -> None:
    """An errback that is called as a function."""
    with open(path, "a") as file:
        file.write(f"{request.id} {type(exc).__name__} {exc} {bool(traceback)}\n")


@app.task(bind=True, name="c.bad", soft_time_limit=0.5, time_limit=1.5)
def bad(self: RedriveTask, how: str) -> None:
    """Ends badly, in each of the ways there are."""
    match how:
        case "exception":
            raise Broken(how)
        case "exhausted":
            raise self.retry(exc=Broken(how), countdown=0, max_retries=0)
        case "rejected":
            raise Reject(how, requeue=False)
        case "soft_timeout":
            time.sleep(30)
        case "hard_timeout":
            while True:
                try:
                    time.sleep(30)
                except Exception:  # noqa: BLE001 - a task that swallows its soft limit
                    continue
        case "memory":
            raise MemoryError
        case "worker_lost":
            os.kill(os.getpid(), signal.SIGKILL)


@app.task(bind=True, name="c.slow")
def slow(self: RedriveTask, value: Any, path: str) -> Any:
    """Runs until there is a file."""
    wait_for(path)
    return value


@app.task(bind=True, name="c.shows")
def shows(self: RedriveTask, meta: Any, path: str) -> str:
    """Shows a state of its own until there is a file."""
    self.update_state(state="HALFWAY", meta=meta)
    slow.run(None, path)
    return "shown"


@app.task(bind=True, name="c.spawn")
def spawn(self: RedriveTask) -> str:
    """Publishes a task of its own: its child."""
    return str(add.delay(1, 2).id)


@app.task(bind=True, name="c.adds")
def adds(self: RedriveTask, value: int) -> int:
    """Adds a member to the chord that it is one of."""
    self.add_to_chord(add.si(value, value))
    return value


@app.task(bind=True, name="c.replaces")
def replaces(self: RedriveTask) -> Any:
    """What is not supported."""
    return self.replace(add.si(1, 1))
