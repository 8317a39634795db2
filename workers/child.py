"""In the pool process: run one attempt under Celery's tracer and report how it ended, as plain values.

The main process never unpickles an exception of the task's: one that cannot be pickled, or whose class the
main process would fail to build again, loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from billiard.einfo import ExceptionInfo
from celery import current_app, states
from celery.app.task import Context
from celery.app.trace import IGNORED, REJECTED
from celery.exceptions import MaxRetriesExceededError, Reject, SoftTimeLimitExceeded
from kombu.exceptions import EncodeError
from kombu.utils.json import dumps

from storage.errors import DatabaseAwayError
from workers import delays, effects, loop
from workers.outcomes import Crashed, Dead, Outcome, Retry, Returned, Succeeded, checked_delay_s, describe

EMBEDDED = ("callbacks", "errbacks", "chain", "chord")
# Reject(requeue=True) means "not now": the same retries, a moment later.
NOT_NOW_S = 1.0
# … and no more often than the broker's own delivery limit would allow.
NOT_NOW_ATTEMPTS = 20
# Postgres was away inside of a task: the same attempt again after so long.
OUTAGE_S = 5.0


@dataclass(frozen=True)
class Ticket:
    """The right to run one attempt; `claim` is the fencing token."""

    job_id: str
    claim: UUID
    generation: int
    attempt: int
    suspect: bool = False
    limit_s: float = 0.0


@dataclass(frozen=True)
class Report:
    """What the pool process tells the main process."""

    outcome: Outcome
    shown: str = ""
    runtime: float = 0.0


@dataclass
class Attempt:
    """The run in progress, for the task base class: what it notes here decides the report."""

    ticket: Ticket
    embed: Mapping[str, Any]
    result: bytes | None = None
    retry: Retry | None = None
    exhausted: bool = False
    capturing: bool = False
    request: Context | None = None


# A context variable, so that it reaches the event loop's thread with an `async def` task.
_current: ContextVar[Attempt | None] = ContextVar("redrive_attempt", default=None)


def current() -> Attempt | None:
    """The attempt that runs here, or None outside of a worker."""
    return _current.get()


def encode_result(value: object) -> bytes:
    """The result as JSON.

    Raises:
        EncodeError: it is not serialisable, or holds NaN or an infinity.
    """
    try:
        encoded: str = dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise EncodeError(f"the result cannot be stored as JSON: {error}") from error
    return encoded.encode()


def run(name: str, task_id: str, request: dict[str, Any], body: tuple[Any, Any, Any]) -> Report:
    """Run one attempt. Called in the pool process, with what `RedriveRequest` sent."""
    args, kwargs, embed = body
    # Only what the protocol knows: other keys would overwrite fields of the request.
    embed = {key: embed[key] for key in EMBEDDED if key in (embed or {})}
    request |= {"args": args, "kwargs": kwargs, "is_eager": False, **embed}
    attempt = Attempt(request["redrive"], embed)
    token = _current.set(attempt)
    task = current_app.tasks[name]
    try:
        if attempt.ticket.suspect:
            effects.record_begin(loop.database(), attempt.ticket)
        value, info, runtime, shown = task.__trace__(task_id, args, kwargs, request)
        return _report(task, attempt, request, value, info, runtime, shown)
    except DatabaseAwayError:
        return Report(Returned(OUTAGE_S))
    finally:
        _current.reset(token)


def _report(
    task: Any, attempt: Attempt, request: dict[str, Any], value: Any, info: Any, runtime: float, shown: str
) -> Report:
    if attempt.retry is not None and (info is None or info.state in (states.RETRY, states.FAILURE)):
        return Report(attempt.retry)
    if info is None:
        if isinstance(value, ExceptionInfo):  # the tracer itself failed
            return Report(Dead("exception", describe(_exception(value), value.traceback)))
        return _succeeded(task, attempt, request, value, runtime, shown)
    error, trace = info.retval, getattr(value, "traceback", None)
    if isinstance(error, DatabaseAwayError):  # an outage is not a failure
        return Report(Returned(OUTAGE_S))
    if info.state == IGNORED:
        return Report(Succeeded(b"null"))
    if info.state == states.RETRY:  # raised by hand, not by Task.retry
        return Report(_raised_by_hand(task, request, error, trace))
    if info.state == REJECTED:
        return _rejected(task, attempt, request, error, trace)
    if isinstance(error, MemoryError):
        return Report(Crashed("memory", describe(error, trace)))
    if isinstance(error, SoftTimeLimitExceeded):
        return Report(Dead("soft_timeout", describe(error, trace)))
    exhausted = attempt.exhausted or isinstance(error, MaxRetriesExceededError)
    return Report(Dead("exhausted" if exhausted else "exception", describe(error, trace)))


def _succeeded(
    task: Any, attempt: Attempt, request: dict[str, Any], value: Any, runtime: float, shown: str
) -> Report:
    if attempt.result is None:  # a __call__ that bypasses RedriveTask's
        ignored = request.get("ignore_result")
        try:
            discard = task.ignore_result if ignored is None else ignored
            attempt.result = b"null" if discard else encode_result(value)
        except EncodeError as error:
            return Report(Dead("exception", describe(error)))
    return Report(Succeeded(attempt.result), shown or "", runtime or 0.0)


def _rejected(
    task: Any, attempt: Attempt, request: dict[str, Any], error: Reject, trace: str | None
) -> Report:
    failure = describe(error, trace)
    if error.requeue and attempt.ticket.attempt < NOT_NOW_ATTEMPTS:
        return Report(Retry(NOT_NOW_S, failure=failure, counted=False))
    # Celery marks a rejection in the main process, where a slow result backend would stop everything.
    context = Context(request, called_directly=False)
    task.backend.mark_as_failure(context.id, error, request=context, store_result=not task.ignore_result)
    return Report(Dead("rejected", failure))


def _exception(info: Any) -> BaseException:
    error = info.exception
    found = getattr(error, "exc", error)
    return found if isinstance(found, BaseException) else RuntimeError(repr(found))


def _raised_by_hand(task: Any, request: dict[str, Any], error: Any, trace: str | None) -> Outcome:
    if (request.get("retries") or 0) >= task.max_retries:  # Task.retry looks at it, a bare Retry does not
        return Dead("exhausted", describe(error, trace))
    try:
        return Retry(_seconds(task.app, error.when), failure=describe(error, trace))
    except (ValueError, OverflowError) as wrong:
        return Dead("exception", describe(wrong, trace))


def _seconds(app: Any, when: object) -> float:
    if isinstance(when, datetime):
        return delays.asked_s(app, None, when)
    return checked_delay_s(when) if isinstance(when, int | float) else 0.0


def encode_arguments(args: Any, kwargs: Any, embed: Mapping[str, Any]) -> bytes:
    """JSON `[args, kwargs, embed]`, the body of a protocol 2 message.

    Raises:
        TypeError, ValueError: they are not serialisable.
    """
    full = {name: embed.get(name) for name in EMBEDDED}
    return json.dumps(json.loads(dumps([list(args), dict(kwargs), full], allow_nan=False))).encode()
