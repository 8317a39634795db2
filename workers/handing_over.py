"""How an attempt ended, in a header of its message, while Postgres is away for longer than a message may stay
unacknowledged.

The next worker records it without running the job again, if the claim in the header still holds the job: its
token is a secret between Postgres and the worker that claimed. Anybody may write such a header, and gets an
ordinary delivery.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter

from topology.headers import OUTCOME
from topology.messages import Message
from topology.spec import BROKER_CONSUMER_TIMEOUT_S
from topology.wire import split
from workers.arrival import Arrival
from workers.completing import Finished, again
from workers.outcomes import Crashed, Dead, Outcome, Retry, Returned, Succeeded, checked_delay_s

logger = logging.getLogger(__name__)
# All properties share one frame of 131,072 bytes, and the message has headers of its own.
LARGEST = 65_536
# Of the time that the broker gives a consumer: the rest is for publishing, and for a broker that is busy.
SHARE = 0.75
VERSION = 1
_KINDS: dict[str, TypeAdapter[Any]] = {
    "succeeded": TypeAdapter(Succeeded),
    "retry": TypeAdapter(Retry),
    "dead": TypeAdapter(Dead),
    "crashed": TypeAdapter(Crashed),
    "returned": TypeAdapter(Returned),
}


def is_due(arrival: Arrival, now: float) -> bool:
    """Whether the broker may soon take the message back. `now` is in monotonic seconds."""
    timeout_s = arrival.queue.consumer_timeout_s or BROKER_CONSUMER_TIMEOUT_S
    return now - arrival.received >= SHARE * timeout_s


def encode(finished: Finished) -> str | None:
    """The header's value, without the traceback if it is too large with it; None if it is so anyway."""
    outcome, claim = finished.outcome, finished.arrival.token
    encoded = _encode(claim, outcome)
    if len(encoded) > LARGEST and isinstance(outcome, Retry | Dead | Crashed) and outcome.failure is not None:
        encoded = _encode(claim, replace(outcome, failure=replace(outcome.failure, traceback="")))
    return encoded.decode() if len(encoded) <= LARGEST else None


def decode(value: object) -> tuple[UUID, Outcome] | None:
    """The claim and the outcome that a header names; None if it is none of ours, or of another release."""
    try:
        fields = json.loads(value) if isinstance(value, str) else None
        if not isinstance(fields, dict) or fields["version"] != VERSION:
            return None
        outcome: Outcome = _KINDS[fields["kind"]].validate_json(json.dumps(fields["outcome"]))
        if isinstance(outcome, Retry | Returned):
            checked_delay_s(outcome.delay_s)
        return UUID(fields["claim"]), outcome
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def message_with_outcome(finished: Finished, header: str, token: str, due_ms: int | None) -> Message:
    """The message as it is, for the attempt that has run, with its outcome."""
    arrival = finished.arrival
    message = again(arrival, arrival.attempt, token, due_ms)
    return replace(message, properties=split(message.properties).with_header(OUTCOME, header).encode())


def take_up(arrival: Arrival, value: object) -> Finished | None:
    """The run that this delivery tells of; None: it is an ordinary delivery."""
    found = decode(value)
    if found is None:
        logger.warning("its outcome cannot be read", extra=arrival.log_fields("outcome_unreadable"))
        return None
    arrival.token, outcome = found
    return Finished(arrival, outcome)


def _encode(claim: UUID, outcome: Outcome) -> bytes:
    kind = type(outcome).__name__.lower()
    head = json.dumps({"version": VERSION, "claim": str(claim), "kind": kind})
    return head[:-1].encode() + b', "outcome": ' + _KINDS[kind].dump_json(outcome) + b"}"
