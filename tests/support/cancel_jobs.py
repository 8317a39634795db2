"""Tasks that look whether they were cancelled, as an adopter would write them."""

from __future__ import annotations

import asyncio
import os
import time

from tests.support.worker_jobs import Flaky
from workers.celery_app import Redrive
from workers.task import RedriveTask

app = Redrive("cancel-tests")
LONGEST_S = 60.0


@app.task(bind=True, name="c.plain", autoretry_for=(Exception,), max_retries=3, default_retry_delay=1)
def plain(self: RedriveTask, then: str) -> str:
    """Runs until it is cancelled, and then does as it was told."""
    ends = time.monotonic() + LONGEST_S
    while not self.cancelled() and time.monotonic() < ends:
        time.sleep(0.02)
    if then == "stop":
        self.stop_if_cancelled()
    if then == "fail":
        raise Flaky("an exception that is tried again")
    if then == "vanish":
        os._exit(1)
    return "done all the same"


@app.task(bind=True, name="c.dies")
def dies(self: RedriveTask) -> None:
    ends = time.monotonic() + LONGEST_S
    while not self.cancelled() and time.monotonic() < ends:
        time.sleep(0.02)
    raise ValueError("for good")


@app.task(bind=True, name="c.async", autoretry_for=(Exception,), max_retries=3)
async def waits(self: RedriveTask) -> None:
    ends = time.monotonic() + LONGEST_S
    while time.monotonic() < ends:
        self.stop_if_cancelled()
        await asyncio.sleep(0.02)
