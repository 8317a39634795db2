"""Events that others sent us."""

from __future__ import annotations

from typing import Any

from celery.exceptions import Reject

from workers.app import app, third_party
from workers.errors import AlreadyDone
from workers.jobs.thirdparty import PermanentError, RateLimitedError, TransientError
from workers.task import RedriveTask


@app.task(bind=True, name="webhooks.handle_webhook", max_retries=5)
def handle_webhook(
    self: RedriveTask, event_id: str, kind: str, data: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Retry the transient, skip the duplicate, dead-letter the doomed."""
    key = f"webhook:{event_id}"
    try:
        with self.once(key) as tx:
            third_party().post(f"/webhooks/{event_id}", {"kind": kind, "data": data or {}}, key=key)
            tx.store({"kind": kind})
    except AlreadyDone:
        return {"event_id": event_id, "handled": False}
    except RateLimitedError as error:
        raise self.retry(exc=error, countdown=error.retry_after_s) from error
    except TransientError as error:
        raise self.retry(exc=error, countdown=2**self.request.retries) from error
    except PermanentError as error:
        raise Reject(str(error), requeue=False) from error
    return {"event_id": event_id, "handled": True}
