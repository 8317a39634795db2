"""Is this delivery a task message that a worker may run? One pure function, used by the guard before
dispatch and by the dead-letter consumer on the stored bytes, so that both name the same reason."""

from __future__ import annotations

import bz2
import gc
import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from kombu.utils import json as kombu_json

from topology.delivery_fields import (
    MAX_DUE_MS,
    MAX_RETRIES,
    RefusalReason,
    Refused,
    attempt_in,
    count_in,
    instant_in,
    limits,
    name_in,
    refuse_far,
    text_or_none,
    wrong,
    wrong_in_body,
)
from topology.headers import DUE, FIRST, Attempt
from topology.wire_properties import Properties

JSON = "application/json"
# Decompressed bodies beyond this are refused: a small message could else fill a worker's memory.
MAX_BODY_BYTES = 64 * 1024 * 1024
# A JSON text from so many characters on is read without the garbage collector.
_LARGE = 1024 * 1024
_TEXTS = ("root_id", "parent_id", "group", "shadow", "argsrepr", "kwargsrepr", "origin", "replyto")


@dataclass(frozen=True)
class Delivery:
    """The parts of a delivery that decide. `headers` are decoded; `body` is as sent unless `decompressed`."""

    content_type: str | None
    content_encoding: str | None
    headers: Mapping[Any, Any]  # keys that are not UTF-8 stay bytes
    body: bytes
    decompressed: bool = False


def delivery_of(properties: Properties, body: bytes, without: Collection[str] = ()) -> Delivery:
    """The same from a property list that was cut by `topology.wire.split`, `without` some of the headers."""
    found = properties.headers_dict(without)
    headers = {name: value for name, value in found.items() if isinstance(name, str)}
    return Delivery(properties.text("content_type"), properties.text("content_encoding"), headers, body)


class TaskMessage(NamedTuple):
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
    attempt: Attempt = FIRST
    due_ms: int | None = None


@dataclass(frozen=True)
class Refusal:
    """Why a delivery is no job for a worker; `detail` names the part and the value seen."""

    reason: RefusalReason
    detail: str
    task: str | None = None
    id: str | None = None


def check_delivery(
    delivery: Delivery, *, known_tasks: Collection[str] | None = None, now: datetime | None = None
) -> TaskMessage | Refusal:
    """The task message in a delivery, or the reason why it is none. Never raises.

    Args:
        known_tasks: names that may run; None when the caller does not know them.
        now: refuses messages that expired before, or are due over 366 days after; None does not.

    The shapes are those of Celery's message protocols 1 and 2:
    https://docs.celeryq.dev/en/stable/internals/protocol.html
    """
    task = text_or_none(delivery.headers.get("task"))
    id_ = text_or_none(delivery.headers.get("id"))
    try:
        payload = _decode(delivery)
        if "task" not in delivery.headers and isinstance(payload, dict):
            task, id_ = text_or_none(payload.get("task")), text_or_none(payload.get("id"))
            message = _protocol_1(payload, delivery.headers)
        else:
            message = _protocol_2(payload, delivery.headers)
        # First: whether it has expired is the same for all, which tasks are known is not.
        if now is not None and message.expires is not None and message.expires <= now:
            raise Refused("expired", f"expired at {message.expires.isoformat()}")
        if now is not None:
            refuse_far(message.due_ms, message.eta, now)
        if known_tasks is not None and message.task not in known_tasks:
            raise Refused("unknown_task", f"no task {message.task!r} is registered")
    except Refused as refused:
        return Refusal(refused.reason, str(refused), task, id_)
    return message


def _decode(delivery: Delivery) -> Any:
    if delivery.content_type != JSON:
        # "application/json; charset=utf-8" is refused too: Celery's children would not decode it.
        raise Refused("undecodable", f"content type {delivery.content_type!r}; only {JSON} is accepted")
    body = delivery.body if delivery.decompressed else decompressed_body(delivery)
    encoding = delivery.content_encoding or "utf-8"
    if encoding.lower() not in ("utf-8", "utf8", "us-ascii", "ascii", "binary"):
        raise Refused("undecodable", f"content encoding {encoding!r}; only UTF-8 is accepted")
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
        raise Refused(
            "undecodable", f"body is not the JSON it says: {type(error).__name__}: {error}"[:500]
        ) from None


def _loads(body: bytes) -> Any:
    """As Celery does. But faster where no `{"__type__": …}` of its own can be: without `__` and escapes."""
    text = body.decode("utf-8")
    loads = kombu_json.loads if "__" in text or "\\" in text else json.loads
    if len(text) < _LARGE or not gc.isenabled():
        return loads(text)
    with _uncollected():
        return loads(text)


@contextmanager
def _uncollected() -> Iterator[None]:
    """The collector would look at what is read again and again, each time more: 10 s instead of 1 for 64 MiB
    of empty lists, in which no other thread runs, and so no heartbeat is sent."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def decompressed_body(delivery: Delivery) -> bytes:
    """The body without the compression that Celery names in a header. Raises Refused."""
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
            raise Refused("undecodable", f"compression {method!r} is not known")
    except (zlib.error, OSError, ValueError) as error:
        raise Refused("undecodable", f"body is not compressed as {method!r}: {error}") from None
    if not whole:
        raise Refused("undecodable", f"body decompresses to over {MAX_BODY_BYTES} bytes, or is cut short")
    return body


def _protocol_2(payload: Any, headers: Mapping[str, Any]) -> TaskMessage:
    if "task" not in headers:
        raise Refused("malformed", f"no task header, and the body is a {type(payload).__name__}")
    if not isinstance(payload, list | tuple) or len(payload) != 3:
        raise Refused("malformed", "body is not [args, kwargs, embed]")
    args, kwargs, embed = payload
    return _message(2, headers, args, kwargs, embed, headers)


def _protocol_1(payload: dict[str, Any], headers: Mapping[str, Any]) -> TaskMessage:
    if "task" not in payload:
        raise Refused("malformed", "neither the headers nor the body name a task")
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
        raise wrong_in_body("args", args, "a list")
    if not isinstance(kwargs, dict):
        raise wrong_in_body("kwargs", kwargs, "an object")
    embed = _embed(embed)
    for name in _TEXTS:
        if (value := fields.get(name)) is not None and not isinstance(value, str):
            raise wrong(name, value, "a string")
    stamps = fields.get("stamped_headers")
    if stamps and not (isinstance(stamps, list | tuple) and all(isinstance(name, str) for name in stamps)):
        raise wrong("stamped_headers", stamps, "a list of strings")
    if not isinstance(fields.get("stamps") or {}, dict):
        raise wrong("stamps", fields.get("stamps"), "a map")
    return TaskMessage(
        id=name_in(fields, "id"),
        task=name_in(fields, "task"),
        args=list(args),
        kwargs=dict(kwargs),
        embed=embed,
        protocol=protocol,
        retries=count_in(fields, "retries", MAX_RETRIES),
        eta=instant_in(fields, "eta"),
        expires=instant_in(fields, "expires"),
        timelimit=limits(fields.get("timelimit")),
        root_id=fields.get("root_id"),
        parent_id=fields.get("parent_id"),
        group=fields.get("group"),
        attempt=attempt_in(headers),
        due_ms=count_in(headers, DUE, MAX_DUE_MS) if headers.get(DUE) is not None else None,
    )


def _embed(embed: Any) -> dict[str, Any]:
    if embed is None:
        return {}
    if not isinstance(embed, dict):
        raise wrong_in_body("embed", embed, "an object")
    for name in ("callbacks", "errbacks", "chain"):
        if (value := embed.get(name)) is not None and not isinstance(value, list | tuple):
            raise wrong_in_body(name, value, "a list")
    return embed
