"""More of `ending_jobs`: what hooks, signal handlers and a result backend that is away do to an end."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn

from celery import signals
from celery.backends.base import DisabledBackend
from celery.exceptions import Reject

from tests.support.ending_jobs import Wrong, app, wrong
from workers.task import RedriveTask


class Hooked(RedriveTask):
    """Each hook raises what the test asks for in the argument of its name."""

    abstract = True

    def _hook(self, name: str, kwargs: dict[str, str]) -> None:
        match kwargs.get(name):
            case "wrong":
                raise RuntimeError(f"{name} failed")
            case "reject":
                raise Reject(f"{name} rejects", requeue=False)
            case "memory":
                raise MemoryError
            case "exit":
                sys.exit(1)

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        self._hook("before_start", kwargs)

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        self._hook("on_success", kwargs)

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        self._hook("on_failure", kwargs)

    def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        self._hook("on_retry", kwargs)

    def after_return(
        self, status: Any, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        self._hook("after_return", kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._hook("call", kwargs)
        value = super().__call__(*args, **kwargs)
        self._hook("call_after", kwargs)
        return value


@app.task(name="e.hooked", base=Hooked)
def hooked(end: str = "fine", **hooks: str) -> str:
    if end == "wrong":
        wrong()
    return end


@app.task(name="e.hooked_retry", base=Hooked, autoretry_for=(Wrong,), max_retries=1, default_retry_delay=1)
def hooked_retry(**hooks: str) -> None:
    wrong()


@app.task(name="e.heard")
def heard(end: str = "fine", prerun: str = "") -> str:
    """Whose every signal handler raises."""
    if end == "wrong":
        wrong()
    return end


@app.task(name="e.heard_retry", autoretry_for=(Wrong,), max_retries=1, default_retry_delay=1)
def heard_retry() -> None:
    wrong()


def deaf(sender: Any = None, request: Any = None, kwargs: Any = None, **_: Any) -> None:
    name = getattr(getattr(request, "task", None), "name", None) or getattr(sender, "name", "")
    if (kwargs or {}).get("prerun") == "exit":
        sys.exit(1)
    if str(name).startswith("e.heard"):
        raise RuntimeError("a handler failed")


for _signal in (
    signals.task_received,
    signals.task_prerun,
    signals.task_postrun,
    signals.task_success,
    signals.task_failure,
    signals.task_retry,
    signals.task_revoked,
):
    _signal.connect(deaf, weak=False)


class Away(DisabledBackend):
    """A result backend that cannot be reached."""

    def _away(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ConnectionError("the result backend is away")

    store_result = mark_as_done = mark_as_failure = mark_as_retry = mark_as_revoked = process_cleanup = _away


class Untold(RedriveTask):
    abstract = True

    @property
    def backend(self) -> Away:
        return Away(app=self.app)


@app.task(name="e.untold", base=Untold, autoretry_for=(KeyError,), max_retries=1, default_retry_delay=1)
def untold(end: str) -> str:
    """Its result backend is away."""
    match end:
        case "wrong":
            wrong()
        case "retries":
            raise KeyError
        case "rejects":
            raise Reject("no good", requeue=False)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
    return end
