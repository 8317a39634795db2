"""The one kind of message that is built here: a Celery task message (protocol 2, JSON)."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from topology.headers import ATTEMPT, PUBLISH, Attempt
from topology.wire import properties

PERSISTENT = 2
# Celery cuts its representations of arguments at this length; they are for monitors only.
REPR_CHARACTERS = 1_024


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
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    # ASCII: a lone surrogate in a payload stays its escape instead of failing to encode.
    body = json.dumps([[], kwargs, embed], allow_nan=False, separators=(",", ":")).encode("ascii")
    headers: dict[str, object] = {
        "lang": "py",
        "task": task,
        "id": job_id,
        "root_id": job_id,
        "parent_id": None,
        "group": None,
        "argsrepr": "()",
        "kwargsrepr": ascii(kwargs)[:REPR_CHARACTERS],
        "origin": origin or f"{os.getpid()}@{socket.gethostname()}",
        "retries": 0,
        "timelimit": [None, None],
        "eta": None,
        "expires": None if expires is None else expires.isoformat(),
        "ignore_result": False,
        ATTEMPT: str(attempt or Attempt()),
        PUBLISH: token or str(uuid4()),
    }
    raw = properties(
        headers=headers,
        content_type="application/json",
        content_encoding="utf-8",
        delivery_mode=PERSISTENT,
        priority=priority,
        correlation_id=job_id,
        message_id=job_id,
        type=task,
    )
    return Message(raw.encode(), body)
