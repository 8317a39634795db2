"""A result backend of the user's is told of messages that die here without having run.

Nobody else would: whoever waits for such a result would wait for ever. Results that are read from the
jobs' rows are found by the dead letter instead.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from celery.app.task import Context
from celery.exceptions import InvalidTaskError, NotRegistered
from kombu.exceptions import DecodeError

from storage.text import safe_text
from topology.delivery import Refusal
from workers.results.backend import RedriveBackend

if TYPE_CHECKING:
    from workers.arrival import Arrival

logger = logging.getLogger(__name__)
LONGEST_ID = 255  # that of a job


def tell_refused(app: Any, message: Any, refusal: Refusal) -> None:
    """Of a message that was refused and has a usable id, as Celery does for an unknown task."""
    if not refusal.id or safe_text(refusal.id, LONGEST_ID) != refusal.id:
        return
    error: Exception = InvalidTaskError(refusal.detail)
    match refusal.reason:
        case "unknown_task":
            error = NotRegistered(refusal.task)
        case "undecodable":
            error = DecodeError(refusal.detail)
    task = app.tasks.get(refusal.task)
    fields = {"action": "telling_failed", "job_id": refusal.id}

    def mark(backend: Any, request: Context, store: bool) -> None:
        backend.mark_as_failure(refusal.id, error, request=request, store_result=store, call_errbacks=False)

    _tell(app, task, message, refusal.id, mark, fields)


def tell_expired(app: Any, arrival: Arrival) -> None:
    """Of a message that came too late."""
    job_id = arrival.task.id

    def mark(backend: Any, request: Context, store: bool) -> None:
        backend.mark_as_revoked(job_id, "expired", request=request, store_result=store)

    fields = arrival.log_fields("telling_failed")
    _tell(app, app.tasks.get(arrival.task.task), arrival.message, job_id, mark, fields)


def _tell(app: Any, task: Any, message: Any, job_id: str, mark: Any, fields: dict[str, Any]) -> None:
    try:
        backend = app.backend if task is None else task.backend
        if isinstance(backend, RedriveBackend):
            return
        properties = message.properties or {}
        request = Context(
            {"id": job_id}, **{name: properties.get(name) for name in ("reply_to", "correlation_id")}
        )
        mark(backend, request, task is None or not task.ignore_result or task.store_errors_even_if_ignored)
    except Exception:
        logger.exception("the result backend was not told", extra=fields)
