"""What the document says in words: to whoever opens `/docs` for the first time."""

from __future__ import annotations

from typing import Any

from storage.times import TIME_FORMS

ABOUT = """\
Jobs are submitted here, and whatever could not be worked is explained, decided on and sent again.

- **Keys**: `Authorization: Bearer rdk_…`; `api-keys create NAME` makes one. Each operation names the scope
  that it needs: to submit `submit`, to look `read`, to change `operate`.
- **Safe to repeat**: a submission carries an `Idempotency-Key`. The same key with the same request gets the
  same answer, and no second job. After a 202 the job is committed.
- **Refusals** are `application/problem+json`: `type` is for programs, `errors` names each field. After a 429
  or 503 wait for `Retry-After` seconds and send the same again.
- **Lists** are pages: give `next_cursor` as `cursor` for the next one; it is null on the last.
- **Times** are RFC 3339 in UTC, sizes are bytes.
- Later releases may add fields to answers: pass over what you do not know.
"""
TAGS: list[dict[str, Any]] = [
    {"name": "jobs", "description": "Submit them, follow them, cancel and retry them."},
    {"name": "queues", "description": "What the broker holds, and what is declared there."},
    {
        "name": "dead letters",
        "description": "What could not be worked: look at it, discard, restore or edit it.",
    },
    {"name": "groups", "description": "Letters that died alike, and what was decided about them."},
    {"name": "replays", "description": "Send dead letters again: dry run, canary, pause, cancel."},
    {"name": "alerts", "description": "What was told about dead letters, where to, and snoozes."},
    {"name": "callbacks", "description": "Who was told of the end of a job."},
    {"name": "audit", "description": "Who changed what, and from where."},
    {"name": "health", "description": "Is it alive, does it accept jobs, and its figures."},
]
SCHEME: dict[str, Any] = {
    "ApiKey": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key, made by `api-keys create`: rdk_…",
    }
}
# Of parameters of which the routes say nothing, by name.
PARAMETERS = {
    "job_id": "id of a job",
    "letter_id": "number of a dead letter",
    "fingerprint": "of a group, or the start of it while no other begins so",
    "alert_id": "id of an alert",
    "replay_id": "id of a replay",
    "callback_id": "id of a callback",
    "name": "of a work queue",
    "queue": "a work queue",
    "task": "name of the task",
    "reason": "why they died, such as exception or undecodable",
    "state": "those in this state",
    "kind": "those of this kind",
    "since": f"not before then: {TIME_FORMS}",
    "until": f"before then: {TIME_FORMS}",
    "subject": "start of a fingerprint, or of a subject such as no_consumer",
    "hours": "so many hours back",
    "limit": "how many to a page",
    "last-event-id": "`id` of the last event that came: the stream goes on after it",
}


def _header(description: str, **schema: Any) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "string"} | schema}


HEADERS = {
    "Location": _header("where to look at it"),
    "Idempotency-Retention": _header("seconds that the key is kept at least", type="integer"),
    "Idempotent-Replayed": _header("`true`: this request had been accepted before", enum=["true"]),
    "Retry-After": _header("seconds", type="integer"),
    "RateLimit": _header('what is left, such as `"requests";r=1999;t=2`'),
    "RateLimit-Policy": _header('such as `"requests";q=2000;w=2`'),
    "WWW-Authenticate": _header("which scheme, and what is missing (RFC 6750)"),
    "Content-Disposition": _header("a name for the file"),
    "Vary": _header("the form is chosen by `Accept`"),
}
