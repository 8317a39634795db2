"""Topology and tasks of the tests about retries and delays: a short ladder, so that a delay takes laps."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from tests.support.gates import wait_for
from topology.spec import JobType, Ladder, Topology, WorkQueue
from workers.celery_app import Redrive
from workers.retry_after import retry_after_s
from workers.task import RedriveTask


class Anything(BaseModel):
    pass


# One lap: 6.2 s nominal.
LADDER = Ladder(tick_ms=100, steps=6)
QUEUE = WorkQueue("work", ladder=LADDER, prefetch=64)
# Consumed by no worker: what comes back to it can be looked at.
ASIDE = WorkQueue("aside", ladder=LADDER)
# One lap: 794 s nominal.
FAR = WorkQueue("far", ladder=Ladder(tick_ms=100, steps=13))
TOPOLOGY = Topology(queues=(QUEUE, ASIDE, FAR), jobs=(JobType("r.note", "work", Anything),))

app = Redrive("tests")
app.conf.worker_send_task_events = False


class Limited(Exception):
    """The other side said when to come again."""

    def __init__(self, header: str) -> None:
        super().__init__(header)
        self.retry_after_s = retry_after_s(header)


def seen(task: RedriveTask, **more: Any) -> dict[str, Any]:
    """What a run finds in its request."""
    request = task.request
    limits = list(request.timelimit or ())
    return {
        "at": time.time(), "id": request.id, "retries": request.retries, "expires": request.expires,
        "limits": limits, "headers": request.headers, "priority": request.delivery_info.get("priority"),
        "root": request.root_id, "parent": request.parent_id, "group": request.group,
        "correlation": request.correlation_id, "reply_to": request.reply_to, **more,
    }  # fmt: skip


@app.task(bind=True, name="r.note")
def note(self: RedriveTask, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return seen(self, args=list(args), kwargs=kwargs)


@app.task(bind=True, name="r.once", max_retries=10)
def once(self: RedriveTask, how: dict[str, Any]) -> dict[str, Any]:
    """Retries once as told, on its first run."""
    if self.request.retries:
        return seen(self)
    raise self.retry(**how)


@app.task(bind=True, name="r.eta", max_retries=3)
def eta(self: RedriveTask, seconds: float, form: str) -> dict[str, Any]:
    """One retry at a time `seconds` from now, given as `form`."""
    if self.request.retries:
        return seen(self)
    due = datetime.now(UTC) + timedelta(seconds=seconds)
    forms: dict[str, Any] = {
        "aware": due,
        "elsewhere": due.astimezone().astimezone(None),
        "naive": due.replace(tzinfo=None),
        "text": due.isoformat(),
    }
    raise self.retry(eta=forms[form], kwargs={"seconds": seconds, "form": form})


@app.task(bind=True, name="r.quiet", max_retries=3)
def quiet(self: RedriveTask) -> str:
    """Asks for a retry without raising it."""
    if self.request.retries == 0:
        self.retry(countdown=0.1, throw=False)
        return "not the end"
    return "the end"


@app.task(bind=True, name="r.bounded", max_retries=10)
def bounded(self: RedriveTask, most: int, **more: Any) -> None:
    """`retry` with a bound and an error of its own."""
    raise self.retry(exc=ValueError(f"run {self.request.retries}"), max_retries=most, countdown=0.1)


@app.task(bind=True, name="r.given_up", max_retries=1)
def given_up(self: RedriveTask) -> None:
    """`retry` without an error of its own."""
    raise self.retry(countdown=0.1)


@app.task(bind=True, name="r.all", autoretry_for=(Exception,), dont_autoretry_for=(KeyError,),
          retry_kwargs={"max_retries": 2, "countdown": 0.1})  # fmt: skip
def every(self: RedriveTask, kind: str) -> None:
    raise {"KeyError": KeyError, "ValueError": ValueError}[kind](kind)


@app.task(bind=True, name="r.limited", autoretry_for=(Limited,), max_retries=3, default_retry_delay=0.1)
def limited(self: RedriveTask, header: str) -> dict[str, Any]:
    if self.request.retries == 0:
        raise Limited(header)
    return seen(self)


@app.task(bind=True, name="r.fail_once", max_retries=3)
def fail_once(self: RedriveTask, seconds: float) -> float:
    if self.request.retries == 0:
        raise self.retry(countdown=seconds)
    return time.time()


@app.task(bind=True, name="r.together", autoretry_for=(ValueError,), retry_backoff=5, retry_jitter=True)
def together(self: RedriveTask) -> None:
    """Fails once; with jitter."""
    if self.request.retries == 0:
        raise ValueError


@app.task(bind=True, name="r.publish")
def publish(self: RedriveTask, queue: str, **options: Any) -> str:
    """Publishes from inside of a task."""
    note.apply_async((1,), queue=queue, **options)
    return "sent"


@app.task(bind=True, name="r.sleep")
def sleep(self: RedriveTask, seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


@app.task(bind=True, name="r.fail_when", max_retries=3)
def fail_when(self: RedriveTask, path: str) -> str:
    """Fails once, when there is a file."""
    if self.request.retries == 0:
        wait_for(path)
        raise self.retry(countdown=1.6)
    return "done"
