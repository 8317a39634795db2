"""Errors as problem+json (RFC 9457)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from api.json_text import MAX_NAME, MAX_PATH, JsonResponse, shortened
from storage.errors import REFUSALS, DatabaseAwayError, MigrationError

log = logging.getLogger("redrive.api")
RETRY_AFTER_S = 2
# Somebody has to run `storage migrate`.
MIGRATED_S = 30
# To be sent again as they are: such an answer always says when, this if nothing else is known.
LATER = {429, 503}
# Faults that one answer lists, and characters of what is said of one.
MAX_ERRORS = 20
MAX_MESSAGE = 500
MAX_DETAIL = 1_000


@dataclass(frozen=True)
class FieldError:
    """What is wrong with one field: a path like `payload.amount_cents`, a header's name, or `body`."""

    field: str
    message: str


class Problem(Exception):
    """An answer that says why a request was refused.

    `kind` is a stable word for programs: the last part of the problem's `type`. The first `MAX_ERRORS` of
    `errors` are listed; `total` is their number where not all were given.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        *,
        total: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.errors = tuple(errors[:MAX_ERRORS])
        self.more_errors = max(len(errors), total or 0) - len(self.errors)
        soon = {"Retry-After": str(RETRY_AFTER_S)} if status in LATER else {}
        self.headers = soon | dict(headers or {})

    @property
    def content(self) -> dict[str, object]:
        content: dict[str, object] = {
            "type": f"urn:redrive:problem:{self.kind}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": shortened(self.detail, MAX_DETAIL),
            "errors": [
                {
                    "field": shortened(error.field, MAX_PATH),
                    "message": shortened(error.message, MAX_MESSAGE),
                }
                for error in self.errors
            ],
        }
        if self.more_errors:
            content["more_errors"] = self.more_errors
        return content

    def response(self) -> Response:
        return JsonResponse(self.content, self.status, self.headers, media_type="application/problem+json")


def field_errors(error: ValidationError, within: str = "") -> list[FieldError]:
    """What a model found wrong, each with its path below `within`: the first `MAX_ERRORS`."""
    parts = (within,) if within else ()
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [_field_error(one, (*parts, *one["loc"])) for one in found[:MAX_ERRORS]]


def _field_error(found: Mapping[str, Any], loc: Sequence[str | int]) -> FieldError:
    field = ".".join(shortened(str(part), MAX_NAME) for part in loc) or "body"
    return FieldError(field, str(found["msg"]).removeprefix("Value error, "))


def invalid(field: str, message: str) -> Problem:
    """422 for one field."""
    return Problem(422, "invalid", "the request is not valid", [FieldError(field, message)])


def away(detail: str) -> Problem:
    """503 for what a retry will mend."""
    return Problem(503, "database-away", detail)


def install(app: FastAPI) -> None:
    """Every error of this app leaves as problem+json."""

    @app.exception_handler(Problem)
    async def _problem(request: Request, error: Problem) -> Response:
        return error.response()

    @app.exception_handler(DatabaseAwayError)
    async def _database_away(request: Request, error: DatabaseAwayError) -> Response:
        return away("the database cannot be reached; try again").response()

    async def _refused(request: Request, error: Exception) -> Response:
        log.error("the database refuses: %s", error, extra={"action": "database_refuses"})
        return away("the database refuses this server; try again later").response()

    for kind in REFUSALS:
        app.add_exception_handler(kind, _refused)

    @app.exception_handler(MigrationError)
    async def _older_schema(request: Request, error: MigrationError) -> Response:
        headers = {"Retry-After": str(MIGRATED_S)}
        return Problem(503, "schema-older", str(error), headers=headers).response()

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        kind = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
        detail = f"{request.method} {request.url.path}: {error.detail}"
        return Problem(error.status_code, kind, detail, headers=error.headers).response()

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> Response:
        # The first part of a place is query, path or header.
        errors = [_field_error(found, found["loc"][1:]) for found in error.errors()]
        return Problem(422, "invalid", "the request is not valid", errors).response()

    @app.exception_handler(Exception)
    async def _unexpected(request: Request, error: Exception) -> Response:
        # The server logs the traceback; the answer tells nothing of the inside.
        return Problem(500, "internal", "this is a defect of the server; its log has the details").response()
