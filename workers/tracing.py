"""Celery's tracer with the judgement first.

Celery tells the result backend, `on_failure`, errbacks and signal handlers of an end, and any of them can
raise. Here what the end is worth is settled before, each of them is told by itself, and what it raises is
logged: it changes nothing. A failure that another attempt follows (an outage, no memory) is told to none.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import current_app, signals, states
from celery.app.task import get_actual_ignore_result
from celery.app.trace import TraceInfo, build_tracer
from kombu.utils.encoding import safe_repr

from workers.outcomes import Dead, Outcome, Retry, describe

logger = logging.getLogger(__name__)

# (Celery's state, what was raised) -> what the attempt is worth; the first word counts.
Judge = Callable[[str, BaseException], Outcome]


class JudgedEnd(TraceInfo):
    """An end other than success, as Celery's tracer makes it."""

    def __init__(self, judge: Judge, state: str, retval: Any = None) -> None:
        super().__init__(state, retval)
        self._outcome = judge(state, retval)

    def handle_error_state(
        self, task: Any, req: Any, eager: bool = False, call_errbacks: bool = True
    ) -> ExceptionInfo:
        einfo = _info(self.retval)
        store = not get_actual_ignore_result(task, req)
        match self._outcome:
            case Dead():
                self._tell_failure(task, req, einfo, store or task.store_errors_even_if_ignored)
            case Retry():
                self._tell_retry(task, req, einfo, store)
        with _alone("the log", task, req):
            if self.state != states.RETRY:
                self._log_error(task, req, einfo)
        return einfo

    def handle_reject(self, task: Any, req: Any, **kwargs: Any) -> None:
        einfo = _info(self.retval)
        with _alone("the log", task, req):
            self._log_error(task, req, einfo)
        if isinstance(self._outcome, Dead):
            # Celery does it in the main process, where a slow result backend would stop everything.
            with _alone("the result backend", task, req):
                task.backend.mark_as_failure(
                    req.id, self.retval, einfo.traceback,
                    request=req, store_result=not task.ignore_result,
                )  # fmt: skip

    def handle_ignore(self, task: Any, req: Any, **kwargs: Any) -> None:
        with _alone("the log", task, req):
            self._log_error(task, req, _info(self.retval))

    def _tell_failure(self, task: Any, req: Any, einfo: Any, store: bool) -> None:
        error = self.retval
        with _alone("the result backend", task, req):
            task.backend.mark_as_failure(req.id, error, einfo.traceback, request=req, store_result=store)
        with _alone("on_failure", task, req):
            task.on_failure(error, req.id, req.args, req.kwargs, einfo)
        with _alone("task_failure", task, req):
            signals.task_failure.send(
                sender=task, task_id=req.id, exception=error, args=req.args, kwargs=req.kwargs,
                traceback=error.__traceback__, einfo=einfo,
            )  # fmt: skip

    def _tell_retry(self, task: Any, req: Any, einfo: Any, store: bool) -> None:
        reason = getattr(self.retval, "exc", None)
        if store:
            with _alone("the result backend", task, req):
                task.backend.mark_as_retry(req.id, reason, einfo.traceback, request=req)
        with _alone("on_retry", task, req):
            task.on_retry(reason, req.id, req.args, req.kwargs, einfo)
        with _alone("task_retry", task, req):
            signals.task_retry.send(sender=task, request=req, reason=self.retval, einfo=einfo)
        logger.info("Task %s[%s] retry: %s", req.shadow or task.name, req.id, safe_repr(reason))


def tracer(task: Any, judge: Judge) -> Callable[..., Any]:
    """`trace_task` of celery.app.trace for this task, in this process."""
    app = current_app._get_current_object()
    return build_tracer(  # type: ignore[no-any-return]
        task.name, task, app.loader, app=app, Info=functools.partial(JudgedEnd, judge)
    )


@contextmanager
def _alone(what: str, task: Any, req: Any) -> Iterator[None]:
    """Whatever happens inside is logged and stays without effect."""
    try:
        yield
    except Exception:
        fields = {"action": "telling_failed", "job_id": req.id, "task": task.name}
        logger.exception("%s failed while an attempt ended", what, extra=fields)


def _info(error: BaseException) -> ExceptionInfo:
    """Celery's view of an exception, whatever its own methods do."""
    try:
        return ExceptionInfo((type(error), error, error.__traceback__))
    except Exception:  # noqa: BLE001 - no traceback, or one that cannot be walked
        stand_in = describe(error)
    try:
        raise RuntimeError(f"{stand_in.type}: {stand_in.message}")
    except RuntimeError:
        return ExceptionInfo()
