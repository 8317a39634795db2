"""Is this delivery a task message that a worker may run? One pure function, used by the guard before
dispatch and by the dead-letter consumer on the stored bytes, so that both name the same reason."""

from __future__ import annotations

import bz2
import json
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from kombu.utils import json as kombu_json

from topology.headers import ATTEMPT, DUE, LAST_ATTEMPT, Attempt, parse_attempt
from topology.wire_properties import Properties

JSON = "application/json"
# Decompressed bodies beyond this are refused: a small message could else fill a worker's memory.
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_ID_BYTES = 255
# One more must still fit the four bytes of its column.
MAX_RETRIES = 2**31 - 2
MAX_DUE_MS = 2**62
_TEXTS = ("root_id", "parent_id", "group", "shadow", "argsrepr", "kwargsrepr", "origin", "replyto")
RefusalReason = Literal["undecodable", "malformed", "unknown_task", "expired"]


@dataclass(frozen=True)
class Delivery:
    """The parts of a delivery that decide. `headers` are decoded; `body` is as sent unless `decompressed`."""

    content_type: str | None
    content_encoding: str | None
    headers: Mapping[Any, Any]  # keys that are not UTF-8 stay bytes
    body: bytes
    decompressed: bool = False


def delivery_of(properties: Properties, body: bytes) -> Delivery:
    """The same from a property list that was cut by `topology.wire.split`."""
    headers = {name: value for name, value in properties.headers_dict().items() if isinstance(name, str)}
    return Delivery(properties.text("content_type"), properties.text("content_encoding"), headers, body)


@dataclass(frozen=True)
class TaskMessage:
    """A well-formed task message."""

    id: str
    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    embed: dict[str, Any]
    protocol: Literal[1, 2]
    retries: int = 0
    eta: datetime | None = None
    expires: datetime | None = None
    timelimit: tuple[float | None, float | None] = (None, None)  # hard, soft; seconds
    root_id: str | None = None
    parent_id: str | None = None
    group: str | None = None
    attempt: Attempt = field(default_factory=Attempt)
    due_ms: int | None = None


@dataclass(frozen=True)
class Refusal:
    """Why a delivery is no job for a worker; `detail` names the part and the value seen."""

    reason: RefusalReason
    detail: str
    task: str | None = None
    id: str | None = None


class _Refused(Exception):
    def __init__(self, reason: RefusalReason, detail: str) -> None:
        super().__init__(detail)
        self.reason: RefusalReason = reason


def check_delivery(
    delivery: Delivery, *, known_tasks: Collection[str] | None = None, now: datetime | None = None
) -> TaskMessage | Refusal:
    """The task message in a delivery, or the reason why it is none. Never raises.

    Args:
        known_tasks: names that may run; None when the caller does not know them.
        now: refuses messages that expired before; None leaves expiry alone.

    The shapes are those of Celery's message protocols 1 and 2:
    https://docs.celeryq.dev/en/stable/internals/protocol.html
    """
    task = _text(delivery.headers.get("task"))
    id_ = _text(delivery.headers.get("id"))
    try:
        payload = _decode(delivery)
        if "task" not in delivery.headers and isinstance(payload, dict):
            task, id_ = _text(payload.get("task")), _text(payload.get("id"))
            message = _protocol_1(payload, delivery.headers)
        else:
            message = _protocol_2(payload, delivery.headers)
        # First: whether it has expired is the same for all, which tasks are known is not.
        if now is not None and message.expires is not None and message.expires <= now:
            raise _Refused("expired", f"expired at {message.expires.isoformat()}")
        if known_tasks is not None and message.task not in known_tasks:
            raise _Refused("unknown_task", f"no task {message.task!r} is registered")
    except _Refused as refused:
        return Refusal(refused.reason, str(refused), task, id_)
    return message


def _decode(delivery: Delivery) -> Any:
    if delivery.content_type != JSON:
        # "application/json; charset=utf-8" is refused too: Celery's children would not decode it.
        raise _Refused("undecodable", f"content type {delivery.content_type!r}; only {JSON} is accepted")
    body = delivery.body if delivery.decompressed else _decompress(delivery)
    encoding = delivery.content_encoding or "utf-8"
    if encoding.lower() not in ("utf-8", "utf8", "us-ascii", "ascii", "binary"):
        raise _Refused("undecodable", f"content encoding {encoding!r}; only UTF-8 is accepted")
    try:
        return _loads(body)
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
        ArithmeticError,
    ) as error:
        # kombu revives {"__type__": …} values here, and a wrong one raises about anything.
        raise _Refused(
            "undecodable", f"body is not the JSON it says: {type(error).__name__}: {error}"[:500]
        ) from None


def _loads(body: bytes) -> Any:
    """As Celery does. But faster where no `{"__type__": …}` of its own can be: without `__` and escapes."""
    text = body.decode("utf-8")
    return kombu_json.loads(text) if "__" in text or "\\" in text else json.loads(text)


def _decompress(delivery: Delivery) -> bytes:
    method = delivery.headers.get("compression")
    if method is None:
        return delivery.body
    try:
        if method in ("application/x-gzip", "gzip", "zlib"):
            decoder = zlib.decompressobj()
            body = decoder.decompress(delivery.body, MAX_BODY_BYTES)
            whole = decoder.eof
        elif method in ("application/x-bz2", "bzip2", "bzip"):
            bunzip = bz2.BZ2Decompressor()
            body = bunzip.decompress(delivery.body, MAX_BODY_BYTES)
            whole = bunzip.eof
        else:
            raise _Refused("undecodable", f"compression {method!r} is not known")
    except (zlib.error, OSError, ValueError) as error:
        raise _Refused("undecodable", f"body is not compressed as {method!r}: {error}") from None
    if not whole:
        raise _Refused("undecodable", f"body decompresses to over {MAX_BODY_BYTES} bytes, or is cut short")
    return body


def _protocol_2(payload: Any, headers: Mapping[str, Any]) -> TaskMessage:
    if "task" not in headers:
        raise _Refused("malformed", f"no task header, and the body is a {type(payload).__name__}")
    if not isinstance(payload, list | tuple) or len(payload) != 3:
        raise _Refused("malformed", "body is not [args, kwargs, embed]")
    args, kwargs, embed = payload
    return _message(2, headers, args, kwargs, embed, headers)


def _protocol_1(payload: dict[str, Any], headers: Mapping[str, Any]) -> TaskMessage:
    if "task" not in payload:
        raise _Refused("malformed", "neither the headers nor the body name a task")
    embed = {name: payload.get(name) for name in ("callbacks", "errbacks", "chord")}
    return _message(1, payload, payload.get("args") or [], payload.get("kwargs") or {}, embed, headers)


def _message(
    protocol: Literal[1, 2],
    fields: Mapping[str, Any],
    args: Any,
    kwargs: Any,
    embed: Any,
    headers: Mapping[str, Any],
) -> TaskMessage:
    if not isinstance(args, list | tuple):
        raise _wrong_in_body("args", args, "a list")
    if not isinstance(kwargs, dict):
        raise _wrong_in_body("kwargs", kwargs, "an object")
    embed = _embed(embed)
    for name in _TEXTS:
        if (value := fields.get(name)) is not None and not isinstance(value, str):
            raise _wrong(name, value, "a string")
    stamps = fields.get("stamped_headers")
    if stamps and not (isinstance(stamps, list | tuple) and all(isinstance(name, str) for name in stamps)):
        raise _wrong("stamped_headers", stamps, "a list of strings")
    if not isinstance(fields.get("stamps") or {}, dict):
        raise _wrong("stamps", fields.get("stamps"), "a map")
    return TaskMessage(
        id=_name(fields, "id"),
        task=_name(fields, "task"),
        args=list(args),
        kwargs=dict(kwargs),
        embed=embed,
        protocol=protocol,
        retries=_count(fields, "retries", MAX_RETRIES),
        eta=_instant(fields, "eta"),
        expires=_instant(fields, "expires"),
        timelimit=_limits(fields.get("timelimit")),
        root_id=fields.get("root_id"),
        parent_id=fields.get("parent_id"),
        group=fields.get("group"),
        attempt=_attempt(headers),
        due_ms=_count(headers, DUE, MAX_DUE_MS) if headers.get(DUE) is not None else None,
    )


def _embed(embed: Any) -> dict[str, Any]:
    if embed is None:
        return {}
    if not isinstance(embed, dict):
        raise _wrong_in_body("embed", embed, "an object")
    for name in ("callbacks", "errbacks", "chain"):
        if (value := embed.get(name)) is not None and not isinstance(value, list | tuple):
            raise _wrong_in_body(name, value, "a list")
    return embed


def _wrong(name: str, value: object, wanted: str) -> _Refused:
    return _Refused("malformed", f"{name} is {repr(value)[:80]}; it must be {wanted}")


def _wrong_in_body(name: str, value: object, wanted: str) -> _Refused:
    """`_wrong` for what the sender wrote into the body: a detail is logged, and bodies are not."""
    return _Refused("malformed", f"{name} is of type {type(value).__name__}; it must be {wanted}")


def _name(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise _wrong(name, value, "a string")
    # NUL is not printable.
    if not value.isprintable() or len(value.encode("utf-8", "surrogatepass")) > MAX_ID_BYTES:
        raise _wrong(name, value, f"printable and of at most {MAX_ID_BYTES} bytes")
    return value


def _count(fields: Mapping[str, Any], name: str, most: int) -> int:
    value = fields.get(name)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise _wrong(name, value, f"a whole number from 0 to {most}")
    return value


def _instant(fields: Mapping[str, Any], name: str) -> datetime | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, datetime):  # revived by kombu's JSON
        instant = value
    else:
        if not isinstance(value, str):
            raise _wrong(name, value, "an ISO 8601 time")
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            raise _Refused("malformed", f"{name} is {value[:80]!r}; it must be an ISO 8601 time") from None
    try:
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except OverflowError:
        raise _Refused("malformed", f"{name} is {value!r}; it is out of range") from None


def _limits(value: Any) -> tuple[float | None, float | None]:
    if value is None:
        return (None, None)
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(map(_is_limit, value)):
        raise _wrong("timelimit", value, "two numbers or nulls")
    return (value[0], value[1])


def _is_limit(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


def _attempt(headers: Mapping[str, Any]) -> Attempt:
    value = headers.get(ATTEMPT)
    if value is None:
        return Attempt()
    if (attempt := parse_attempt(value)) is None:
        raise _wrong(ATTEMPT, value, '"<generation>.<attempt>"')
    if max(attempt.generation, attempt.attempt) >= LAST_ATTEMPT:
        raise _wrong(ATTEMPT, value, f"below {LAST_ATTEMPT}")
    return attempt


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
