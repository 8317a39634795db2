"""What a submission asks for: pure checks of the parsed body and the idempotency key."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import ValidationError

from api.callback import NAMES as CALLBACK_NAMES
from api.callback import read_callback
from api.job_ids import new_ids
from api.json_text import MAX_NAME, MAX_PATH, encode, odd_text, shortened
from api.options import NAMES, read_options
from api.problems import FieldError, Problem, field_errors
from outbound.reach import Reach
from storage.job_callbacks import JobCallback
from storage.job_options import NO_OPTIONS, JobOptions
from storage.jobs import NewJob
from topology.errors import UnknownJobTypeError
from topology.messages import task_message
from topology.payloads import validated
from topology.spec import JobType, Topology

KEY_HEADER = "Idempotency-Key"
# Of an accepted request: seconds that its key is kept at least.
RETENTION_HEADER = "Idempotency-Retention"
KEY_FIELD = "idempotency_key"
MAX_KEY = 255
# Printable ASCII: a key is the same whether it came in a header or in the body.
_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_ASKED = (*NAMES, *CALLBACK_NAMES)
_PLAIN = frozenset(("type", "payload", KEY_FIELD))
_FIELDS = _PLAIN.union(_ASKED)


class Submission(NamedTuple):
    """A request that was found valid. `payload` has the model's defaults filled in."""

    job: JobType
    payload: dict[str, Any]
    text: bytes  # `encode` of the payload
    key: str
    request: bytes  # sha256 of type, payload, options and callback as they were sent
    options: JobOptions | None = None
    callback: JobCallback | None = None


def new_job(asked: Submission, principal: str) -> NewJob:
    """The job and its message, under a new id."""
    (job_id, token), options = new_ids(2), asked.options or NO_OPTIONS
    message = task_message(
        job_id,
        asked.job.name,
        asked.payload,
        token=token,
        origin="redrive-api",
        expires=options.expires,
        priority=options.priority,
    )
    return NewJob(
        id=job_id,
        type=asked.job.name,
        queue=asked.job.queue,
        payload=asked.text,
        principal=principal,
        properties=message.properties,
        body=message.body,
        token=token,
        options=asked.options,
        callback=asked.callback,
    )


def read_submission(
    topology: Topology,
    body: Any,
    key_headers: Sequence[str] | None = None,
    *,
    callbacks: Reach | None = None,
    now: datetime | None = None,
) -> Submission:
    """Check a parsed body and the values of its Idempotency-Key headers.

    Args:
        key_headers: None where no header can name a key.
        callbacks: where they may lead; None where none are taken.
        now: for the bounds of times; else the clock's.

    Raises:
        Problem: 400 about the key, 422 about the rest; each wrong field is named.
    """
    if not isinstance(body, dict):
        raise invalid([FieldError("body", "must be a JSON object with type and payload")])
    if key_headers is None and KEY_FIELD not in body:
        raise _bad_key(KEY_FIELD, "is required")
    key = _key(body, key_headers or ())
    errors = [
        FieldError(shortened(name, MAX_NAME), "is no field of a submission")
        for name in body
        if name not in _FIELDS
    ]
    job = _job_type(topology, body, errors)
    payload = body.get("payload")
    if not isinstance(payload, dict):
        errors.append(FieldError("payload", "is required" if "payload" not in body else "must be an object"))
    options, callback, asked = None, None, {}
    if not body.keys() <= _PLAIN:
        queue = None if job is None else topology.queue(job.queue)
        options = read_options(body, queue, errors, now or datetime.now(UTC))
        callback = read_callback(body, callbacks, errors)
        asked = {name: body[name] for name in _ASKED if name in body}
    if job is None or not isinstance(payload, dict) or errors:
        raise invalid(errors)
    text = encode(payload)
    if (path := odd_text(payload, text)) is not None:
        odd = "must not have a NUL or half a pair of surrogates in it"
        raise invalid([FieldError(shortened(f"payload.{path}", MAX_PATH), odd)])
    # What `encode` would make of a list of them.
    parts = [encode(job.name), text, *([encode(asked)] if asked else [])]
    request = hashlib.sha256(b"[%b]" % b",".join(parts)).digest()
    complete = _complete(job, payload, text)
    return Submission(
        job, complete, text if complete is payload else encode(complete), key, request, options, callback
    )


def _key(body: dict[str, Any], headers: Sequence[str]) -> str:
    """The one key that header and body name.

    A header in double quotes is read as the string inside: the IETF draft makes the field a structured string
    (draft-ietf-httpapi-idempotency-key-header-07, RFC 8941), while most clients send it bare.
    """
    given = [
        (KEY_HEADER, value[1:-1] if re.fullmatch(r'".*"', value, re.DOTALL) else value) for value in headers
    ]
    if KEY_FIELD in body:
        given.append((KEY_FIELD, body[KEY_FIELD]))
    if not given:
        raise _bad_key(KEY_HEADER, f"is required, as this header or as {KEY_FIELD} in the body")
    for field, value in given:
        if not isinstance(value, str):
            raise _bad_key(field, "must be a string")
        if len(value) > MAX_KEY:
            raise _bad_key(field, f"is longer than {MAX_KEY} characters")
        if not _KEY.fullmatch(value):
            raise _bad_key(field, "must be printable ASCII, not empty, with no space at either end")
    if len({value for _, value in given}) > 1:
        raise _bad_key(given[-1][0], "differs from the key in the header")
    return str(given[0][1])


def _job_type(topology: Topology, body: dict[str, Any], errors: list[FieldError]) -> JobType | None:
    name = body.get("type")
    if not isinstance(name, str):
        errors.append(FieldError("type", "is required" if "type" not in body else "must be a string"))
        return None
    try:
        return topology.job(name)
    except UnknownJobTypeError:
        # 422, not 404: the resource /jobs exists, a field of the content is wrong.
        known = ", ".join(job.name for job in topology.jobs)
        errors.append(FieldError("type", f"is no job type here; known are: {known}"))
        return None


def _complete(job: JobType, payload: dict[str, Any], text: bytes) -> dict[str, Any]:
    """The payload, checked by the job type's model, with its defaults filled in."""
    try:
        model = validated(job, payload, text)
    except ValidationError as error:
        raise invalid(field_errors(error, "payload"), error.error_count()) from error
    if not (unset := type(model).model_fields.keys() - model.model_fields_set):
        return payload
    return {**payload, **model.model_dump(mode="json", include=unset, by_alias=True)}


def _bad_key(field: str, message: str) -> Problem:
    return Problem(400, "idempotency-key", f"{field} {message}", [FieldError(field, message)])


def invalid(errors: Sequence[FieldError], total: int | None = None) -> Problem:
    """422 that tells the first faults in its detail."""
    detail = "; ".join(f"{error.field}: {error.message}" for error in errors[:3])
    return Problem(422, "invalid", detail, errors, total=total)
