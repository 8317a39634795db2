"""From the outcome of an attempt to what Postgres records and what the next message is. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from storage.claims import Completion, Waiting
from topology.headers import Attempt
from topology.messages import Message
from workers import republish
from workers.arrival import Arrival
from workers.outcomes import Crashed, Dead, Failure, Outcome, Retry, Returned, Succeeded

# billiard reports a hard time limit before it kills the process: the next attempt must not meet the old one.
CRASH_DELAY_S = 1.0


@dataclass(frozen=True)
class Finished:
    """An attempt of ours and how it ended."""

    arrival: Arrival
    outcome: Outcome


def delay_s(outcome: Outcome) -> float:
    """Nominal seconds until the next attempt."""
    match outcome:
        case Retry(delay_s=seconds) | Returned(delay_s=seconds):
            return seconds
        case Crashed():
            return CRASH_DELAY_S
    return 0.0


def completion(finished: Finished, *, bare: bool = False) -> Completion:
    """What is recorded.

    Args:
        bare: how it ended and no more, for a record that Postgres refused.
    """
    claim, outcome = finished.arrival.claim(), finished.outcome
    failure: Failure | None = None
    match outcome:
        case Succeeded(result):
            return Completion(claim, "succeeded", result=None if bare else result)
        case Returned():
            return Completion(claim, "returned")
        case Retry():
            kind, reason, failure = "retry", None, outcome.failure
        case Dead(reason, failure):
            kind = "dead"
        case Crashed(reason, failure):
            kind = "crashed"
    if bare:
        return Completion(claim, kind, reason=reason)  # type: ignore[arg-type]  # one of the three above
    if failure is None:
        failure = Failure("", "")
    return Completion(
        claim,
        kind,  # type: ignore[arg-type]  # one of three literals, see above
        reason=reason,
        exception_type=failure.type or None,
        message=failure.message or None,
        traceback=failure.traceback or None,
        delay_ms=int(delay_s(outcome) * 1000),
        retries=finished.arrival.task.retries + 1 if isinstance(outcome, Retry) and outcome.counted else None,
        arguments=outcome.arguments if isinstance(outcome, Retry) else None,
        options=_json(outcome.options) if isinstance(outcome, Retry) and outcome.options else None,
    )


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(value)).encode()


def next_message(finished: Finished, attempt: Attempt, token: str, due_ms: int | None) -> Message:
    """The message of the attempt that waits now."""
    outcome = finished.outcome
    if not isinstance(outcome, Retry):
        return again(finished.arrival, attempt, token, due_ms)
    retries = finished.arrival.task.retries + (1 if outcome.counted else 0)
    return _retried(finished.arrival, attempt, token, due_ms, retries, outcome.arguments, outcome.options)


def recorded_message(
    arrival: Arrival, attempt: Attempt, waiting: Waiting, token: str, due_ms: int | None
) -> Message:
    """The same, made from an older message and what is on record."""
    options = json.loads(waiting.options) if waiting.options else {}
    retries = max(waiting.retries, arrival.task.retries)
    return _retried(arrival, attempt, token, due_ms, retries, waiting.arguments, options)


def again(arrival: Arrival, attempt: Attempt, token: str, due_ms: int | None) -> Message:
    """The same message, for `attempt`."""
    return republish.again(
        arrival.raw_properties, arrival.raw_body, attempt=attempt, token=token, due_ms=due_ms
    )


def _retried(
    arrival: Arrival, attempt: Attempt, token: str, due_ms: int | None,
    retries: int, arguments: bytes | None, options: Mapping[str, Any],
) -> Message:  # fmt: skip
    return republish.retried(
        arrival.raw_properties,
        arrival.raw_body,
        protocol=arrival.task.protocol,
        attempt=attempt,
        token=token,
        due_ms=due_ms,
        retries=retries,
        arguments=arguments,
        options=options,
    )
