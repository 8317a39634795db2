"""The next message of a job: the same bytes, but for what must change. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from kombu.compression import decompress
from kombu.utils.json import dumps

from topology.headers import ATTEMPT, DUE, PUBLISH, Attempt
from topology.messages import Message
from topology.republish import carried
from topology.wire import Properties

Protocol = Literal[1, 2]


def again(raw: bytes, body: bytes, *, attempt: Attempt, token: str, due_ms: int | None) -> Message:
    """The message for a way round the ladder: same task, same arguments, ids and custom headers.

    Args:
        token: value of the header PUBLISH.
        due_ms: unix milliseconds before which it is not to run, where one lap is not enough.
    """
    return Message(_outgoing(raw, attempt, token, due_ms).encode(), body)


def postponed(
    raw: bytes, body: bytes, *, protocol: Protocol, attempt: Attempt, token: str, due_ms: int | None
) -> Message:
    """A message whose `eta` the ladder keeps: the field goes, or the next worker would send it on again."""
    kept = _outgoing(raw, attempt, token, due_ms)
    return _changed(kept, body, protocol, {"eta": None})


def retried(
    raw: bytes,
    body: bytes,
    *,
    protocol: Protocol,
    attempt: Attempt,
    token: str,
    due_ms: int | None,
    retries: int,
    arguments: bytes | None = None,
    options: Mapping[str, Any] | None = None,
) -> Message:
    """The message of the next attempt after `Task.retry`.

    Args:
        retries: Celery's count for the next attempt.
        arguments: JSON `[args, kwargs, embed]` when they changed.
        options: `time_limit`, `soft_time_limit` (s), `expires` (ISO 8601) and `priority`, where changed.
    """
    options = options or {}
    kept = _outgoing(raw, attempt, token, due_ms)
    fields: dict[str, Any] = {"retries": retries, "eta": None}
    if "time_limit" in options or "soft_time_limit" in options:
        fields["timelimit"] = [options.get("time_limit"), options.get("soft_time_limit")]
    if "expires" in options:
        fields["expires"] = options["expires"]
    if "priority" in options:
        kept = kept._replace(priority=options["priority"])
    return _changed(kept, body, protocol, fields, arguments)


def _outgoing(raw: bytes, attempt: Attempt, token: str, due_ms: int | None) -> Properties:
    kept = carried(raw).with_header(ATTEMPT, str(attempt)).with_header(PUBLISH, token)
    return kept if due_ms is None else kept.with_header(DUE, due_ms)


def _changed(
    kept: Properties,
    body: bytes,
    protocol: Protocol,
    fields: dict[str, Any],
    arguments: bytes | None = None,
) -> Message:
    """Protocol 2 has its fields in the headers, protocol 1 in the body."""
    if protocol == 2:
        for name, value in fields.items():
            if value is not None or kept.get_header(name) is not None:
                kept = kept.with_header(name, value)
        if arguments is None:
            return Message(kept.encode(), body)
        return Message(kept.without_headers(("compression",)).encode(), arguments)
    method = kept.get_header("compression")
    # Plain json: values that kombu's would revive go through unchanged.
    payload = json.loads(decompress(body, method) if method else body)
    payload |= fields
    if arguments is not None:
        payload["args"], payload["kwargs"] = json.loads(arguments)[:2]
    return Message(kept.without_headers(("compression",)).encode(), dumps(payload).encode())
