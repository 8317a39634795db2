"""Tasks that a stopping worker finds running. Each run leaves a line: job, process, and what it met."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from celery.exceptions import SoftTimeLimitExceeded

from tests.support.gates import wait_for
from tests.support.worker_jobs import MARK, app
from workers.errors import AlreadyDone
from workers.task import RedriveTask

__all__ = ["app"]


def leave_line(path: str, job: str) -> bool:
    """Line `job pid`, with `beside` if an earlier run of this job is still alive. Whether it is the first."""
    file = Path(path)
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    earlier = [int(pid) for other, pid, *_ in lines if other == job]
    beside = "beside" if any(_alive(pid) for pid in earlier) else ""
    with file.open("a") as opened:
        opened.write(f"{job} {os.getpid()} {beside}\n")
    return not earlier


def _alive(pid: int) -> bool:
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX"
    return False


@app.task(bind=True, name="t.work_on")
def work_on(
    self: RedriveTask, path: str, seconds: float, again_s: float | None = None, gate: str = ""
) -> str:
    """Waits for the file `gate`, takes `seconds`, and `again_s` in a later run; then an effect, once."""
    first = leave_line(path, self.request.id)
    wait_for(gate)
    time.sleep(seconds if first or again_s is None else again_s)
    with suppress(AlreadyDone), self.once(f"effect of {self.request.id}") as tx:
        tx.execute(MARK, self.request.id, self.request.id)
    return "done"


@app.task(bind=True, name="t.stubborn", soft_time_limit=1, time_limit=90)
def stubborn(self: RedriveTask, path: str) -> str:
    """Its first run ignores every signal that can be ignored, and its soft limit."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not leave_line(path, self.request.id):
        return "done"
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with suppress(SoftTimeLimitExceeded):
            time.sleep(60)
    return "not ended"
