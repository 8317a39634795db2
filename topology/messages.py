"""The one kind of message that is built here: a Celery task message (protocol 2, JSON)."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from topology.headers import FIRST, Attempt
from topology.task_properties import task_properties

# Celery cuts its representations of arguments at this length; they are for monitors only.
REPR_CHARACTERS = 1_024
FIRST_ATTEMPT = str(FIRST)
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_EMBED = _ENCODER.encode({"callbacks": None, "errbacks": None, "chain": None, "chord": None})


@dataclass(frozen=True)
class Message:
    """A message as it goes over the wire: `properties` is the raw AMQP property list, flags included."""

    properties: bytes
    body: bytes


def task_message(
    job_id: str,
    task: str,
    kwargs: dict[str, Any],
    *,
    attempt: Attempt | None = None,
    token: str | None = None,
    origin: str | None = None,
    expires: datetime | None = None,
    priority: int | None = None,
) -> Message:
    """The message that makes a worker run `task(**kwargs)` as job `job_id`.

    Args:
        token: value of the header PUBLISH (default: a new uuid), by which a returned message is known.
        origin: the publisher, for monitors (default: pid@host).
        expires: a worker dead-letters it instead of beginning it after this time.
        priority: 0 to 255, as far as the queue has priorities.

    Raises:
        ValueError: `kwargs` hold NaN or an infinity, which JSON cannot.

    https://docs.celeryq.dev/en/stable/internals/protocol.html
    """
    # ASCII: a lone surrogate in a payload stays its escape instead of failing to encode.
    body = f"[[],{_ENCODER.encode(kwargs)},{_EMBED}]".encode("ascii")
    raw = task_properties(
        job_id,
        task,
        kwargs=ascii(kwargs)[:REPR_CHARACTERS],
        origin=origin or f"{os.getpid()}@{socket.gethostname()}",
        expires=None if expires is None else expires.isoformat(),
        attempt=str(attempt) if attempt else FIRST_ATTEMPT,
        token=token or str(uuid4()),
        priority=priority,
    )
    return Message(raw, body)
