"""In the pool process: run one attempt under Celery's tracer and report how it ended, as plain values.

The main process never unpickles an exception of the task's: one that cannot be pickled, or whose class the
main process would fail to build again, loses nothing.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from billiard.common import terminate_handler_fired
from billiard.einfo import ExceptionInfo
from celery import current_app, states
from celery.app.task import Context
from celery.app.trace import IGNORED
from celery.backends.base import Backend
from celery.exceptions import MaxRetriesExceededError, Reject, SoftTimeLimitExceeded
from kombu.exceptions import EncodeError, OperationalError
from kombu.utils.json import dumps

from storage.errors import ConflictError, DatabaseAwayError
from storage.results import record_children
from workers import delays, effects, loop, tracing
from workers.canvas.signatures import links_with_ids
from workers.errors import JobCancelled
from workers.outcomes import Crashed, Dead, Outcome, Retry, Returned, Succeeded, checked_delay_s, describe

if TYPE_CHECKING:
    from workers.cancelling import Cancelling
    from workers.progress import ProgressWriter

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

    def __reduce__(self) -> tuple[Any, ...]:
        """Half the cost of pickling that a UUID and a frozen dataclass have by themselves."""
        rest = self.generation, self.attempt, self.suspect, self.limit_s
        return _ticket, (self.job_id, self.claim.bytes, *rest)


def _ticket(job_id: str, claim: bytes, *rest: Any) -> Ticket:
    return Ticket(job_id, UUID(bytes=claim), *rest)


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
    task: Any = None
    retries: int = 0
    result: bytes | None = None
    retry: Retry | None = None
    exhausted: bool = False
    added: int = 0  # to its chord
    capturing: bool = False
    request: Context | None = None
    end: Outcome | None = None  # once it is known not to be success
    progress: ProgressWriter | None = None
    cancelling: Cancelling | None = None


# A context variable, so that it reaches the event loop's thread with an `async def` task.
_current: ContextVar[Attempt | None] = ContextVar("redrive_attempt", default=None)


def current() -> Attempt | None:
    """The attempt that runs here, or None outside of a worker."""
    return _current.get()


def encode_result(value: object) -> bytes:
    """The result as JSON.

    Raises:
        EncodeError: it is not serialisable, holds NaN or an infinity, or has more than
            `REDRIVE_WORKER_RESULT_BYTES`.
    """
    try:
        encoded: bytes = dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise EncodeError(f"the result cannot be stored as JSON: {error}") from error
    most = current_app.environment.worker.result_bytes
    if len(encoded) > most:
        raise EncodeError(
            f"the result has {len(encoded)} bytes as JSON, over the {most} of REDRIVE_WORKER_RESULT_BYTES"
        )
    return encoded


def run(name: str, task_id: str, request: dict[str, Any], body: tuple[Any, Any, Any]) -> Report:
    """Run one attempt. Called in the pool process, with what `RedriveRequest` sent."""
    args, kwargs, embed = body
    # Only what the protocol knows: other keys would overwrite fields of the request.
    embed = {key: embed[key] for key in EMBEDDED if key in (embed or {})}
    ticket = request["redrive"]
    # What Celery does not know is `request.headers` to the task, and may be passed on to other tasks.
    request = {key: value for key, value in request.items() if not str(key).startswith("redrive")}
    request |= {"args": args, "kwargs": kwargs, "is_eager": False, **embed}
    task = current_app.tasks[name]
    attempt = Attempt(ticket, embed, task, request.get("retries") or 0)
    token = _current.set(attempt)
    try:
        with loop.lending_to(attempt, ticket.limit_s):
            if attempt.ticket.suspect:
                effects.record_begin(loop.database(), attempt.ticket)
            request |= links_with_ids(embed, task_id)
            value, info, runtime, shown = _tracer(name)(task_id, args, kwargs, request)
            if info is None and attempt.request is not None and attempt.request.children:
                children = dumps([child.as_tuple() for child in attempt.request.children]).encode()
                loop.ask(task.app, lambda connection: record_children(connection, task_id, children))
        return _report(attempt, request, value, info, runtime, shown)
    except BaseException as error:
        if terminate_handler_fired():  # this process is being ended from outside
            raise
        # A task that leaves (SystemExit and the like), or what its hooks raised. The process stays.
        return Report(attempt.end or _judged(states.FAILURE, error))
    finally:
        _current.reset(token)


@functools.cache  # in each pool process anew
def _tracer(name: str) -> Any:
    return tracing.tracer(current_app.tasks[name], _judged)


def _report(
    attempt: Attempt, request: dict[str, Any], value: Any, info: Any, runtime: float, shown: str
) -> Report:
    if info is not None and attempt.end is not None:
        return Report(attempt.end)
    if attempt.retry is not None:  # planned without raising
        return Report(attempt.retry)
    if isinstance(value, ExceptionInfo):  # the tracer itself failed
        return Report(Dead("exception", describe(_exception(value), value.traceback)))
    return _succeeded(attempt, request, value, runtime, shown)


def _judged(state: str, error: BaseException) -> Outcome:
    """What an attempt is worth that ended so. Its first such end counts: later ones are those of hooks."""
    attempt = _current.get()
    assert attempt is not None
    if attempt.end is None:
        attempt.end = _judge(attempt, state, error)
    return attempt.end


def _not_now(attempt: Attempt, error: BaseException) -> Retry | None:
    if attempt.ticket.attempt >= NOT_NOW_ATTEMPTS:
        return None
    return Retry(NOT_NOW_S, failure=describe(error), counted=False)


def _judge(attempt: Attempt, state: str, error: BaseException) -> Outcome:
    if isinstance(error, ConflictError):  # passes by itself, unless it is the task's own doing
        return _not_now(attempt, error) or Dead("exception", describe(error))
    if isinstance(error, DatabaseAwayError):  # an outage is not a failure
        return Returned(OUTAGE_S)
    if isinstance(error, Reject):
        again = _not_now(attempt, error) if error.requeue else None
        return again or Dead("rejected", describe(error))
    if isinstance(error, JobCancelled) and attempt.cancelling is not None and attempt.cancelling.asked:
        return Returned()  # on record as CANCELLED: who was asked to stop does not wait again
    if state == IGNORED:
        return Succeeded(b"null")
    if attempt.retry is not None:
        return attempt.retry
    if attempt.result is not None and _while_told_of_success(error):
        return Succeeded(attempt.result)
    if attempt.result is not None and isinstance(error, OperationalError):
        # The broker was away while what follows was sent: the run is repeated, its effects are not.
        return Returned(OUTAGE_S)
    if state == states.RETRY:  # raised by hand, not by Task.retry
        return _raised_by_hand(attempt, error)
    if isinstance(error, MemoryError):
        return Crashed("memory", describe(error))
    if isinstance(error, SoftTimeLimitExceeded):
        return Dead("soft_timeout", describe(error))
    exhausted = attempt.exhausted or isinstance(error, MaxRetriesExceededError)
    return Dead("exhausted" if exhausted else "exception", describe(error))


def _while_told_of_success(error: BaseException) -> bool:
    """Whether the result backend raised, called by the tracer once callbacks and chain were sent."""
    told = error.__traceback__ and error.__traceback__.tb_next
    return told is not None and isinstance(told.tb_frame.f_locals.get("self"), Backend)


def _succeeded(attempt: Attempt, request: dict[str, Any], value: Any, runtime: float, shown: str) -> Report:
    if attempt.result is None:  # a __call__ that bypasses RedriveTask's
        if inspect.isawaitable(value):
            return Report(Dead("exception", describe(EncodeError(f"{value!r} was returned and never run"))))
        ignored = request.get("ignore_result")
        try:
            discard = attempt.task.ignore_result if ignored is None else ignored
            attempt.result = b"null" if discard else encode_result(value)
        except EncodeError as error:
            return Report(Dead("exception", describe(error)))
    return Report(Succeeded(attempt.result), shown or "", runtime or 0.0)


def _exception(info: Any) -> BaseException:
    error = info.exception
    found = getattr(error, "exc", error)
    return found if isinstance(found, BaseException) else RuntimeError(repr(found))


def _raised_by_hand(attempt: Attempt, error: Any) -> Outcome:
    if attempt.retries >= attempt.task.max_retries:  # Task.retry looks at it, a bare Retry does not
        return Dead("exhausted", describe(error))
    try:
        return Retry(_seconds(attempt.task.app, error.when), failure=describe(error))
    except (ValueError, OverflowError) as wrong:
        return Dead("exception", describe(wrong))


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
