"""Topology and tasks of the worker tests, written as an adopter would: a queue of their own, `Redrive(…)`."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import signal
import stat
import time
from typing import Any

from billiard.pool import Worker as PoolWorker
from celery.exceptions import Ignore, Reject, Retry
from pydantic import BaseModel

from tests.support.gates import wait_for
from topology.spec import JobType, Ladder, Topology, WorkQueue
from workers.celery_app import Redrive
from workers.task import RedriveTask


class Anything(BaseModel):
    pass


QUEUE = WorkQueue("work", ladder=Ladder(tick_ms=100, steps=10), prefetch=4)
TOPOLOGY = Topology(queues=(QUEUE,), jobs=(JobType("t.add", "work", Anything),))

app = Redrive("tests")

MARK = "INSERT INTO redrive.sample_emails (email_key, state, job_id) VALUES ($1, 'sent', $2)"


class Flaky(Exception):
    """Passes by itself."""


@app.task(bind=True, name="t.add")
def add(self: RedriveTask, x: int, y: int) -> int:
    return x + y


@app.task(bind=True, name="t.flaky", autoretry_for=(Flaky,), max_retries=3, default_retry_delay=1)
def flaky(self: RedriveTask, fail: int) -> dict[str, int]:
    """Fails `fail` times."""
    if self.request.retries < fail:
        raise Flaky(f"try {self.request.retries}")
    return {"retries": self.request.retries, "attempt": self.attempt_number.attempt}


@app.task(bind=True, name="t.keyed", autoretry_for=(Flaky,), max_retries=3, default_retry_delay=1)
def keyed(self: RedriveTask, path: str) -> None:
    """Hands its key to another side, and fails in its first attempt."""
    with open(path, "a") as file:
        file.write(f"{self.effect_key}\n")
    if self.request.retries == 0:
        raise Flaky


@app.task(bind=True, name="t.spread", autoretry_for=(Flaky,), retry_backoff=4, retry_jitter=True)
def spread(self: RedriveTask) -> None:
    """Fails once."""
    if self.request.retries == 0:
        raise Flaky


@app.task(bind=True, name="t.retry_after", max_retries=3)
def retry_after(self: RedriveTask, seconds: float) -> str:
    if self.request.retries == 0:
        raise self.retry(countdown=seconds, kwargs={"seconds": -1})
    return f"came back with {seconds:g}"


@app.task(bind=True, name="t.retry_in", max_retries=3)
def retry_in(self: RedriveTask, seconds: str) -> None:
    """A delay that JSON cannot carry, such as "nan"."""
    raise self.retry(countdown=float(seconds))


@app.task(bind=True, name="t.retry_by_hand", max_retries=3)
def retry_by_hand(self: RedriveTask, seconds: str) -> None:
    raise Retry(when=float(seconds))


@app.task(bind=True, name="t.poison")
def poison(self: RedriveTask) -> None:
    raise ZeroDivisionError("poison \x00 \ud800")


@app.task(bind=True, name="t.reject", autoretry_for=(Exception,), dont_autoretry_for=(KeyError,))
def reject(self: RedriveTask) -> None:
    raise Reject("no good", requeue=False)


@app.task(bind=True, name="t.ignore")
def ignore(self: RedriveTask) -> None:
    raise Ignore


@app.task(bind=True, name="t.unserialisable")
def unserialisable(self: RedriveTask) -> object:
    return object()


class Unpicklable(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)
        self.fd = open(os.devnull)  # noqa: SIM115

    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")


@app.task(bind=True, name="t.unpicklable")
def unpicklable(self: RedriveTask) -> None:
    raise Unpicklable("a", "b")


@app.task(bind=True, name="t.mark")
def mark(self: RedriveTask, key: str, seconds: float = 0.0, path: str = "", gate: str = "") -> str:
    """A line in a file for each run, which goes on once there is the file `gate`; an effect, once."""
    if path:
        with open(path, "a") as file:
            file.write(f"{self.request.id} {os.getpid()}\n")
    wait_for(gate)
    time.sleep(seconds)
    from workers.errors import AlreadyDone

    try:
        with self.once(key) as tx:
            tx.execute(MARK, key, self.request.id)
            tx.store("first")
    except AlreadyDone as done:
        return f"again: {done.result}"
    return "done"


@app.task(bind=True, name="t.kill")
def kill(self: RedriveTask) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(bind=True, name="t.kill_worker")
def kill_worker(self: RedriveTask) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(30)


@app.task(bind=True, name="t.kill_worker_later")
def kill_worker_later(self: RedriveTask) -> None:
    """Once that it began is on record, for itself and its neighbours."""
    time.sleep(1.5)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(30)


@app.task(bind=True, name="t.flaky_slow", autoretry_for=(Flaky,), max_retries=5, default_retry_delay=1)
def flaky_slow(self: RedriveTask, fail: int, gate: str = "") -> None:
    wait_for(gate)
    time.sleep(1)
    if self.request.retries < fail:
        raise Flaky


@app.task(bind=True, name="t.hard", soft_time_limit=1, time_limit=1.5)
def hard(self: RedriveTask) -> None:
    while True:
        try:
            time.sleep(30)
        except Exception:  # noqa: BLE001 - a task that swallows its soft limit
            continue


@app.task(bind=True, name="t.soft", soft_time_limit=0.5, time_limit=10)
def soft(self: RedriveTask) -> None:
    for _ in range(600):  # one long sleep would keep a thread from noticing
        time.sleep(0.05)


@app.task(bind=True, name="t.overdue", soft_time_limit=0.3, time_limit=0.6)
def overdue(self: RedriveTask) -> None:
    """Swallows its soft limit, and comes back from its hard one in a thread."""
    while True:
        with contextlib.suppress(Exception):
            time.sleep(0.05)


@app.task(bind=True, name="t.hangs", soft_time_limit=0.5, time_limit=1)
def hangs(self: RedriveTask, key: str) -> None:
    """In one call that no thread comes back from in time."""
    time.sleep(120)


@app.task(bind=True, name="t.zombie", soft_time_limit=1, time_limit=1.5)
def zombie(self: RedriveTask, key: str, path: str) -> None:
    """Has begun its effect when its attempt is ended, swallows all that tells it so, and commits."""
    try:
        with self.once(f"{key}-{self.attempt_number}") as tx:
            tx.execute(MARK, f"{key}-{self.attempt_number}", self.request.id)
            with contextlib.suppress(BaseException):
                time.sleep(2.8)
    except BaseException as error:
        with open(path, "a") as file:
            file.write(f"{type(error).__name__}\n")
        raise


@app.task(bind=True, name="t.steps")
def steps(self: RedriveTask, key: str, path: str) -> None:
    """Four seconds in which it can be interrupted, then its effect."""
    with open(path, "a") as file:
        file.write(f"{self.request.id}\n")
    for _ in range(80):
        time.sleep(0.05)
    with self.once(key) as tx:
        tx.execute(MARK, key, self.request.id)


@app.task(bind=True, name="t.exit")
def leave(self: RedriveTask) -> None:
    raise SystemExit(3)


@app.task(bind=True, name="t.interrupt")
def interrupt(self: RedriveTask) -> None:
    raise KeyboardInterrupt


@app.task(bind=True, name="t.memory")
def memory(self: RedriveTask) -> None:
    raise MemoryError


@app.task(bind=True, name="t.coroutine", soft_time_limit=20, time_limit=30)
async def coroutine(self: RedriveTask, key: str) -> dict[str, Any]:
    await asyncio.sleep(0.01)
    async with self.once(key) as tx:
        await tx.execute(MARK, key, self.request.id)
    return {"id": self.request.id, "retries": self.request.retries}


@app.task(bind=True, name="t.unwatched")
def unwatched(self: RedriveTask) -> None:
    """Closes what tells the main process of the end of this one, as the kernel does just before it."""
    kept = {1, 2} | {w.outq._writer.fileno() for w in gc.get_objects() if isinstance(w, PoolWorker)}
    for fd in (int(name) for name in os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)
            if is_pipe and fd not in kept and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_WRONLY:
                os.close(fd)
