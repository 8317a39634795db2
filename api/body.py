"""Reading a request's body within its limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from api import audited, visit
from api.auth import runtime_at
from api.json_text import MAX_VALUES, JsonFault, parse
from api.openapi.schema import REF
from api.problems import FieldError, Problem, field_errors

# Larger texts are taken apart in a thread, so that the event loop goes on.
INLINE_BYTES = 32_768
BUSY = {"Retry-After": "2"}
CLOSE = {"Connection": "close"}
# For the record alone: nobody hears it.
CUT_OFF = (400, "cut-off")

Read = TypeVar("Read")
Model = TypeVar("Model", bound=BaseModel)


async def read_json(
    request: Request, limit: int, check: Callable[[Any], Read], most: int = MAX_VALUES
) -> Read:
    """What `check` makes of the JSON value of the body, of at most `limit` bytes and `most` values.

    Raises:
        Problem: 415 another content type, 413 too large (seen while reading, so also in a chunked
            body), 408 too slow, 503 too much is being read, 400 no JSON, 422 JSON that is not taken;
            the field is named. Also what `check` raises.
        DatabaseAwayError: what is asked cannot be put on record.
    """
    _require_json(request.headers.get("content-type", ""))
    _require_plain(request.headers.get("content-encoding", ""))
    text = await _read(request, limit)

    def read() -> tuple[Any, Read]:
        value = _parsed(text, most)
        return value, check(value)

    if len(text) <= INLINE_BYTES:
        value, found = read()
    else:
        async with runtime_at(request).bodies.parsing:
            value, found = await asyncio.to_thread(read)
    await audited.tell(request, value)
    return found


def as_model(model: type[Model], value: Any) -> Model:
    """The value as the model reads it.

    Raises:
        Problem: 422, each wrong field named.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        errors, total = field_errors(error), error.error_count()
        raise Problem(422, "invalid", "the request is not valid", errors, total=total) from error


def body_schema(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """What the OpenAPI document says of a body that `read_json` reads."""
    content = {"application/json": {"schema": model.model_json_schema(ref_template=REF), "example": example}}
    return {"requestBody": {"required": True, "content": content}}


def _parsed(text: bytes, most: int) -> Any:
    try:
        return parse(text, most)
    except JsonFault as fault:
        field = fault.path or "body"
        status, kind = (400, "not-json") if fault.syntax else (422, "invalid")
        raise Problem(status, kind, f"{field}: {fault.message}", [FieldError(field, fault.message)]) from None


async def _read(request: Request, limit: int) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)
    runtime, text = runtime_at(request), bytearray()
    visit.of(request.scope).at_end.append(lambda: runtime.bodies.give_back(len(text)))
    seconds = runtime.config.api.body_timeout_s
    try:
        async with asyncio.timeout(seconds):
            more = True
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunk, more = message.get("body", b""), message.get("more_body", False)
                if len(text) + len(chunk) > limit:
                    raise _too_large(limit)
                if not runtime.bodies.take(len(chunk), len(text)):
                    raise Problem(
                        503, "too-many-bodies", "too much is being read; try again", headers=BUSY | CLOSE
                    )
                text += chunk
    except ClientDisconnect:
        raise Problem(*CUT_OFF, "the client went away before its body was whole") from None
    except TimeoutError:
        fault = FieldError("body", f"did not come within {seconds:g} s")
        raise Problem(408, "too-slow", f"the body {fault.message}", [fault], CLOSE) from None
    return bytes(text)


def _require_json(content_type: str) -> None:
    media, *parameters = (part.strip().lower() for part in content_type.split(";"))
    charset = next((part[8:].strip("\"'") for part in parameters if part.startswith("charset=")), "utf-8")
    if media != "application/json" or charset not in ("utf-8", "utf8"):
        message = f"must be application/json in UTF-8, not {content_type[:100]!r}"
        raise Problem(415, "not-json", f"Content-Type {message}", [FieldError("Content-Type", message)])


def _require_plain(encoding: str) -> None:
    if encoding.strip().lower() not in ("", "identity"):
        message = f"must be identity, not {encoding[:100]!r}: bodies are not unpacked here"
        fault = FieldError("Content-Encoding", message)
        # RFC 9110, 15.5.16: what would be taken.
        headers = {"Accept-Encoding": "identity"}
        raise Problem(415, "content-encoding", f"Content-Encoding {message}", [fault], headers)


def _too_large(limit: int) -> Problem:
    message = f"larger than {limit} bytes"
    # The rest of the body is not read, so this connection cannot carry another request.
    return Problem(413, "too-large", f"the body is {message}", [FieldError("body", message)], CLOSE)
