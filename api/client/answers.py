"""What the API answered: a value, or an error of the right type. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from api.client import errors
from api.client.errors import FieldFault, Problem, RedriveError, UnexpectedAnswer

_KIND = "urn:redrive:problem:"
_BY_STATUS: dict[int, type[Problem]] = {
    400: errors.Invalid,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.NotAllowed,
    413: errors.Invalid,
    415: errors.Invalid,
    422: errors.Invalid,
    429: errors.RateLimited,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}


@dataclass(frozen=True)
class Answer:
    """`headers` by lower-case name."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def retry_after_s(self) -> float | None:
        """Seconds, from a number or a date (RFC 9110, 10.2.3); None where there is no such header."""
        text = self.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit():
            return float(text[:9])
        try:
            at = parsedate_to_datetime(text)
        except ValueError:
            return None
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return max((at - datetime.now(UTC)).total_seconds(), 0.0)

    @property
    def json(self) -> Any:
        """Raises UnexpectedAnswer."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise UnexpectedAnswer(
                f"the answer ({self.status}) is no JSON: is this the API's address?"
            ) from error


def error_of(answer: Answer) -> RedriveError:
    """What an answer that is no 2xx says."""
    if not 400 <= answer.status <= 599:
        return UnexpectedAnswer(f"answered {answer.status}: is this the API's address?")
    try:
        said = json.loads(answer.body)
    except (ValueError, RecursionError):
        said = None
    return problem_of(said, answer.status, answer.retry_after_s)


def problem_of(said: Any, status: int, retry_after_s: float | None = None) -> Problem:
    """The error of a problem+json value, also of one job of a batch. Another server's page has no `kind`."""
    told = said if isinstance(said, dict) and str(said.get("type", "")).startswith(_KIND) else {}
    kind = str(told.get("type", "")).removeprefix(_KIND)
    made = _BY_STATUS.get(status, errors.ServerFault if status >= 500 else Problem)
    if kind == "idempotency-conflict":
        made = errors.IdempotencyConflict
    faults = [
        FieldFault(str(fault.get("field", "")), str(fault.get("message", "")))
        for fault in told.get("errors") or ()
        if isinstance(fault, dict)
    ]
    detail = str(told.get("detail") or f"answered {status} {_phrase(status)}".rstrip())
    more = told.get("more_errors")
    return made(detail, status, kind, faults, more if isinstance(more, int) else 0, retry_after_s)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
