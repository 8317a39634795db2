"""Tasks that end badly, each in its own way, for a worker on the queue of `worker_jobs`."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from celery.exceptions import Reject
from pydantic import BaseModel

from tests.support.worker_jobs import QUEUE
from topology.spec import JobType, Topology
from workers.celery_app import Redrive
from workers.task import RedriveTask


class Anything(BaseModel):
    pass


NAMES = (
    "e.fine",
    "e.takes",
    "e.raises",
    "e.exhausts",
    "e.waits_past_its_expiry",
    "e.rejects",
    "e.rejects_overridden",
    "e.returns_reject",
    "e.soft",
    "e.hard",
    "e.signal",
    "e.segfault",
    "e.os_exit",
    "e.kills_the_worker",
    "e.leaves",
    "e.async_exit",
    "e.async_fine",
    "e.memory",
    "e.allocates",
    "e.returns",
    "e.raises_odd",
    "e.hooked",
    "e.hooked_retry",
    "e.heard",
    "e.heard_retry",
    "e.untold",
)
TOPOLOGY = Topology(queues=(QUEUE,), jobs=tuple(JobType(name, QUEUE.name, Anything) for name in NAMES))

app = Redrive("ends", include=["tests.support.ending_hooks"])


class Wrong(Exception):
    """What these tasks raise."""


def wrong() -> NoReturn:
    raise Wrong("no good")


# Ends by word


@app.task(name="e.fine")
def fine(seconds: float = 0.0) -> str:
    time.sleep(seconds)
    return "fine"


@app.task(name="e.takes")
def takes(_anything: object = None) -> str:
    return "taken"


@app.task(name="e.raises")
def raises() -> None:
    wrong()


@app.task(name="e.exhausts", autoretry_for=(Wrong,), max_retries=1, default_retry_delay=1)
def exhausts() -> None:
    wrong()


@app.task(name="e.waits_past_its_expiry", bind=True, max_retries=3)
def waits_past_its_expiry(self: RedriveTask) -> None:
    raise self.retry(countdown=20, exc=Wrong("later"))


@app.task(name="e.rejects", autoretry_for=(Exception,), default_retry_delay=1)
def rejects() -> None:
    raise Reject("no good", requeue=False)


@app.task(name="e.rejects_overridden", autoretry_for=(Exception,), dont_autoretry_for=(KeyError,))
def rejects_overridden() -> None:
    raise Reject("no good", requeue=False)


@app.task(name="e.returns_reject")
def returns_reject() -> object:
    return Reject("made, not raised", requeue=False)


# Limits, signals, exits


@app.task(name="e.soft", soft_time_limit=0.5, time_limit=20)
def soft() -> None:
    time.sleep(30)


@app.task(name="e.hard", soft_time_limit=0.5, time_limit=1)
def hard(path: str) -> None:
    """Notes its process, and the one of the attempt before that still lives."""
    note = Path(path)
    before = note.read_text().split() if note.exists() else []
    beside = [pid for pid in before if pid.isdigit() and Path(f"/proc/{pid}").exists()]
    note.write_text(" ".join([*before, str(os.getpid()), *(f"beside-{pid}" for pid in beside)]))
    while True:
        try:
            time.sleep(30)
        except Exception:  # noqa: BLE001 - a task that swallows its soft limit
            continue


@app.task(name="e.signal")
def send_signal(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(30)


@app.task(name="e.segfault")
def segfault() -> None:
    ctypes.string_at(0)


@app.task(name="e.os_exit")
def os_exit(code: int) -> None:
    os._exit(code)


@app.task(name="e.kills_the_worker")
def kills_the_worker() -> None:
    """Once its start is on record."""
    time.sleep(1)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(30)


class Outside(BaseException):
    """No `Exception`, and one that cannot be made again from its arguments."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


@app.task(name="e.leaves")
def leaves(how: str) -> None:
    if how == "outside":
        raise Outside("a", "b")
    raise {"exit": SystemExit(3), "interrupt": KeyboardInterrupt(), "generator": GeneratorExit()}[how]


@app.task(name="e.async_exit")
async def async_exit() -> None:
    sys.exit(1)


@app.task(name="e.async_fine")
async def async_fine() -> str:
    return "fine"


# Memory


@app.task(name="e.memory")
def memory() -> None:
    raise MemoryError


@app.task(name="e.allocates")
def allocates() -> None:
    """More than its process may have."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 64 * 1024 * 1024, hard_limit))
    try:
        bytearray(1024 * 1024 * 1024)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft_limit, hard_limit))


# Results


@app.task(name="e.returns")
def returns(what: str) -> object:
    recursive: list[Any] = []
    recursive.append(recursive)
    made: dict[str, object] = {
        "object": object(),
        "nan": {"x": float("nan")},
        "recursive": recursive,
        "surrogate": "\ud800 \x00",
    }
    return "x" * 100_000_000 if what == "huge" else made[what]


# Exceptions


class Unpicklable(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __repr__(self) -> str:
        raise RuntimeError("no text either")


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit(9)


@app.task(name="e.raises_odd")
def raises_odd(what: str) -> None:
    made: dict[str, BaseException] = {
        "unpicklable": Unpicklable("x"),
        "mute": Mute(),
        "leaving": Leaving(),
        "long": Wrong("x" * 1_000_000),
        "nul": Wrong("a \x00 b \ud800"),
    }
    if what == "cycle":
        one, two = Wrong("one"), Wrong("two")
        one.__cause__, two.__cause__ = two, one
        raise one
    if what == "deep":
        _deeper()
    if what == "long traceback":
        error: Exception = Wrong("0")
        for number in range(300):
            error = _caused_by(error, f"{number} {'y' * 1000}")
        raise error
    raise made[what]


def _deeper() -> None:
    _deeper()


def _caused_by(cause: Exception, text: str) -> Exception:
    try:
        raise Wrong(text) from cause
    except Wrong as error:
        return error
