"""Refusals as the document shows them: RFC 9457, with an example of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import Field

from api import problems
from api.openapi import story
from api.openapi.schema import Shown, ref
from api.problems import FieldError
from storage.times import TIME_FORMS

MEDIA = "application/problem+json"
# What an operation may answer by its form: any, with a key, with a body.
ALWAYS = ("url-too-long", "headers-too-large")
WITH_KEY = ("unauthorized", "scope", "rate-limit", "too-many-unknown-keys", "database-away", "schema-older")
WITH_BODY = (
    "not-json",
    "too-slow",
    "too-large",
    "wrong-content-type",
    "content-encoding",
    "invalid-body",
    "too-many-bodies",
)
_NO_UUID = "Input should be a valid UUID, invalid length: expected length 32 for simple format, found 4"
# What is wrong with a parameter: the first of these that an operation has is shown.
WRONG_VALUES = {
    "letter_id": "Input should be a valid integer, unable to parse string as an integer",
    "alert_id": _NO_UUID,
    "callback_id": _NO_UUID,
    "limit": "Input should be less than or equal to 1000",
    "hours": "Input should be less than or equal to 2160",
    "wait": "Input should be less than or equal to 60",
    "format": "Input should be 'json', 'mermaid' or 'svg'",
    "since": f"'yesterday' is not a time: {TIME_FORMS}",
    "last-event-id": "String should have at most 255 characters",
}


class FieldFault(Shown):
    field: str = Field(description="a path such as `payload.amount_cents`, a header's name, or `body`")
    message: str


class Problem(Shown):
    """Why a request was refused (RFC 9457). `type` and `status` are for programs, the rest is for people."""

    type: Annotated[str, Field(pattern="^urn:redrive:problem:[a-z-]+$")]
    title: str = Field(description="the status in words")
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str
    errors: list[FieldFault] = Field(max_length=problems.MAX_ERRORS, description="the first 20 faults")
    more_errors: int | None = Field(None, ge=1, description="faults beyond the ones listed")


def _example(status: int, kind: str, detail: str, *errors: tuple[str, str]) -> problems.Problem:
    return problems.Problem(status, kind, detail, [FieldError(*error) for error in errors])


def _invalid(field: str, message: str) -> problems.Problem:
    return _example(422, "invalid", "the request is not valid", (field, message))


def of_parameters(names: Collection[str]) -> Iterator[str]:
    """Names of examples."""
    yield from [f"invalid-{name}" for name in WRONG_VALUES if name in names][:1]


_ENCODED = "must be identity, not 'gzip': bodies are not unpacked here"
_KEY_LONG = ("Idempotency-Key", "is longer than 255 characters")
_JOB, _LETTER = f"job {story.JOB}", f"letter {story.LETTER}"
_NO_GROUP = f"no group {story.GROUP[:8]}. See: dlq groups"
_OUTSTANDING = f"{_LETTER} is in replay {story.REPLAY}, which is not over"
EXAMPLES: Mapping[str, problems.Problem] = {
    **{f"invalid-{name}": _invalid(name, words) for name, words in WRONG_VALUES.items()},
    "url-too-long": _example(414, "url-too-long", "the URL is longer than 8192 bytes",
                             ("url", "is longer than 8192 bytes")),
    "headers-too-large": _example(431, "headers-too-large", "the headers are more than 100",
                                  ("headers", "are more than 100")),
    "unauthorized": _example(401, "unauthorized", "a key is required: Authorization: Bearer rdk_…"),
    "scope": _example(403, "scope", f"the key {story.SUBMITTER!r} lacks the scope 'operate'"),
    "rate-limit": _example(429, "rate-limit", f"the key {story.SUBMITTER!r} asks too often: 1000 requests a "
                           "second, 2000 at once"),
    "too-many-unknown-keys": _example(429, "too-many-unknown-keys",
                                      "too many unknown keys from this address"),
    "too-many-open": _example(429, "too-many-open",
                              f"the key {story.SUBMITTER!r} has 125 waiting requests open"),
    "database-away": _example(503, "database-away", "the database cannot be reached; try again"),
    "schema-older": _example(503, "schema-older",
                             "this needs the schema of this release. Run: storage migrate"),
    "not-json": _example(400, "not-json", "body: not JSON: Expecting value at line 1 column 1",
                         ("body", "not JSON: Expecting value at line 1 column 1")),
    "too-slow": _example(408, "too-slow", "the body did not come within 30 s",
                         ("body", "did not come within 30 s")),
    "too-large": _example(413, "too-large", "the body is larger than 1048576 bytes",
                          ("body", "larger than 1048576 bytes")),
    "wrong-content-type": _example(415, "not-json",
                                   "Content-Type must be application/json in UTF-8, not 'text/plain'",
                                   ("Content-Type", "must be application/json in UTF-8, not 'text/plain'")),
    "content-encoding": _example(415, "content-encoding", f"Content-Encoding {_ENCODED}",
                                 ("Content-Encoding", _ENCODED)),
    "invalid-body": _invalid("note", "Input should be a valid string"),
    "too-many-bodies": _example(503, "too-many-bodies", "too much is being read; try again"),
    "invalid-batch": _example(422, "invalid", "jobs: has 1001 jobs; it must have 1 to 1000",
                              ("jobs", "has 1001 jobs; it must have 1 to 1000")),
    "invalid-submission": _example(422, "invalid", "payload.amount_cents: Input should be greater than 0",
                                   ("payload.amount_cents", "Input should be greater than 0")),
    "idempotency-key": _example(400, "idempotency-key", " ".join(_KEY_LONG), _KEY_LONG),
    "idempotency-conflict": _example(
        422, "idempotency-conflict",
        f"the idempotency key was used for job {story.JOB} with another type, payload or option",
        ("Idempotency-Key", "was used for another request")),
    "outbox-full": _example(503, "outbox-full", "1000000 messages wait to be published already; nothing was "
                            "stored, try again"),
    "unknown-job": _example(404, "unknown-job", f"there is no job '{story.JOB}'"),
    "not-finished": _example(409, "not-finished", f"{_JOB} is RUNNING: it has no result yet"),
    "no-result": _example(409, "no-result", f"{_JOB} is DEAD (exception): it has no result"),
    "too-many-waiting": _example(503, "too-many-waiting", "500 requests wait already"),
    "job-has-ended": _example(409, "not-allowed", f"{_JOB} is SUCCEEDED: only a job that has not "
                              "ended is cancelled"),
    "job-is-not-dead": _example(409, "not-allowed", f"{_JOB} is RUNNING: only a DEAD job is run again"),
    "another-key": _example(403, "scope", f"{_JOB} was submitted by another key; that needs 'operate'"),
    "unknown-queue": _example(404, "unknown-queue", "no work queue 'payment'; there are: payments, emails"),
    "not-acceptable": _example(406, "not-acceptable", "Accept takes none of application/json, image/svg+xml, "
                               "text/vnd.mermaid"),
    "unknown-letter": _example(404, "unknown-letter", f"there is no dead letter {story.LETTER}"),
    "letter-not-allowed": _example(409, "not-allowed", _OUTSTANDING,
                                   ("letter_id", f"is in replay {story.REPLAY}, which is not over")),
    "letters-not-allowed": _example(409, "not-allowed", "some letters do not allow it",
                                    ("letter_ids", _OUTSTANDING)),
    "changed": _example(409, "changed", "the filter finds 13 letters now, and not 12",
                        ("expect", "the filter finds 13 letters now, and not 12")),
    "unknown-letters": _example(422, "unknown-letters", "some letters are not on record",
                                ("letter_ids", f"{_LETTER} is not on record")),
    "too-many-exports": _example(503, "too-many-exports", "2 exports are under way"),
    "too-many-at-once": _example(503, "too-many-at-once", "2 requests that take as long are under way; "
                                 "nothing was done, try again"),
    "too-many-streams": _example(503, "too-many-streams", "64 streams are open"),
    "unknown-group": _example(404, "unknown-group", f"there is no group '{story.GROUP[:8]}'"),
    "ambiguous-group": _example(409, "ambiguous-group", f"3f may be {story.GROUP}, {story.OTHER_GROUP}"),
    "moved-group": _example(409, "moved-group", f"the letters of group {story.GROUP} are in "
                            f"{story.OTHER_GROUP} now"),
    "unknown-alert": _example(404, "unknown-alert", f"there is no alert {story.ALERT}"),
    "unknown-subject": _example(404, "unknown-subject", _NO_GROUP, ("subject", _NO_GROUP)),
    "unknown-replay": _example(404, "unknown-replay", f"there is no replay '{story.REPLAY}'"),
    "replay-state": _example(409, "replay-state", f"replay {story.REPLAY} is done"),
    "replay-outstanding": _example(409, "replay-outstanding",
                                   "another replay of these letters is outstanding",
                                   ("letter_ids", _OUTSTANDING)),
    "not-replayable": _example(409, "not-replayable", "some letters cannot be replayed",
                               ("letter_ids", f"{_LETTER} is discarded")),
    "unknown-callback": _example(404, "unknown-callback", f"there is no callback {story.CALLBACK}"),
}  # fmt: skip
_NAMES = {
    "Unauthorized": ("unauthorized",),
    "Forbidden": ("scope",),
    "RequestTimeout": ("too-slow",),
    "ContentTooLarge": ("too-large",),
    "UriTooLong": ("url-too-long",),
    "UnsupportedMediaType": ("wrong-content-type", "content-encoding"),
    "HeadersTooLarge": ("headers-too-large",),
    "BadRequest": ("not-json",),
    "InvalidLimit": ("invalid-limit",),
    "InvalidBody": ("invalid-body",),
    "InvalidLetterId": ("invalid-letter_id", "invalid-body"),
    "TooManyRequests": ("rate-limit", "too-many-unknown-keys"),
    "Unavailable": ("database-away", "schema-older"),
    "UnavailableOrBusy": ("database-away", "schema-older", "too-many-bodies"),
}
# Refusals that more than one operation has in common, by what they say.
_SHARED = {kinds: name for name, kinds in _NAMES.items()}
_HEADERS = {
    401: ("WWW-Authenticate",),
    403: ("WWW-Authenticate",),
    429: ("Retry-After", "RateLimit", "RateLimit-Policy"),
    503: ("Retry-After",),
}


def shared() -> dict[str, Any]:
    """`components.responses`."""
    return {name: _response(kinds) for name, kinds in _NAMES.items()}


def responses(names: Iterable[str]) -> dict[str, Any]:
    """By status what these refusals look like, the lowest first."""
    by_status: dict[int, list[str]] = {}
    for name in dict.fromkeys(names):
        by_status.setdefault(EXAMPLES[name].status, []).append(name)
    return {str(status): _of(tuple(kinds)) for status, kinds in sorted(by_status.items())}


def _of(kinds: tuple[str, ...]) -> dict[str, Any]:
    name = _SHARED.get(kinds)
    return _response(kinds) if name is None else {"$ref": f"#/components/responses/{name}"}


def _response(kinds: tuple[str, ...]) -> dict[str, Any]:
    status = EXAMPLES[kinds[0]].status
    examples = {kind: {"summary": EXAMPLES[kind].detail, "value": EXAMPLES[kind].content} for kind in kinds}
    shown: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {MEDIA: {"schema": ref(Problem.__name__), "examples": examples}},
    }
    if headers := _HEADERS.get(status):
        shown["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in headers}
    return shown
