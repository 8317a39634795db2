"""A message made ready to be sent out again: the bytes it came with, less what would bend its way."""

from __future__ import annotations

from datetime import datetime

from topology.delivery import TaskMessage, check_delivery, delivery_of
from topology.headers import ATTEMPT, DEATH_HEADERS, DELIVERY_COUNTERS, DUE, OUTCOME, REPLAY, Attempt
from topology.wire import MalformedProperties, NotEncodable, Properties, split

# The broker would route by CC and BCC once more; a due time belongs to one way round the ladder,
# an outcome to one claim.
_DROPPED_HEADERS = (*DEATH_HEADERS, *DELIVERY_COUNTERS, DUE, OUTCOME, "CC", "BCC")
# An expiration would shorten a delay: of the queue's TTL and the message's the lower one counts. `user_id`
# must be that of the publishing connection, or the broker closes the channel.
_DROPPED_PROPERTIES = ("expiration", "user_id")
_EXPIRES = "expires"  # Celery's own expiry would end a replay at once
_RETRIES = "retries"
_NOT_REPLAYED = (*_DROPPED_HEADERS, _EXPIRES)
_SPECIMEN = "00000000-0000-0000-0000-000000000000"


def carried(properties: bytes) -> Properties:
    """What of a delivered message goes out again, on whatever way: every other entry keeps its bytes.

    Raises:
        MalformedProperties: the list cannot be taken apart.
    """
    return split(properties).without(*_DROPPED_PROPERTIES).without_headers(_DROPPED_HEADERS)


def for_replay(properties: bytes, *, token: str, attempt: Attempt | None) -> bytes:
    """The property list for a replay. Every entry that is not named here keeps its bytes and its place.

    Of Celery's protocol 1 `retries` and `expires` stand in the body, which is not touched: such a replay runs
    with the retries that were left, at least once.

    Args:
        properties: as the dead-letter queue delivered them.
        token: names this replay of this letter; comes back in the letter's header if it dies again.
        attempt: what the message is to stand for, or None for a message that is not ours.

    Raises:
        MalformedProperties: the list cannot be taken apart.
    """
    return replayed(split(properties), token=token, attempt=attempt).encode()


def replayed(cut: Properties, *, token: str, attempt: Attempt | None) -> Properties:
    """`for_replay` of a list that was cut already, and not put together yet."""
    kept = cut.without(*_DROPPED_PROPERTIES).without_headers(_NOT_REPLAYED)
    changed: dict[str, object] = {_RETRIES: 0} if _has(kept, _RETRIES) else {}
    if attempt is not None:
        changed[ATTEMPT] = str(attempt)
    return kept.with_headers(changed | {REPLAY: token})


def ended_by_its_body(properties: Properties, body: bytes, now: datetime) -> str | None:
    """Why nobody would run it: Celery's protocol 1 has the expiry in the body, which goes out as it is."""
    if properties.get_header("task") is not None:  # protocol 2
        return None
    if b"expires" not in body and b"\\" not in body and properties.get_header("compression") is None:
        return None  # no JSON that says so, in whatever way
    task = check_delivery(delivery_of(properties, body))
    if not isinstance(task, TaskMessage) or task.expires is None or task.expires > now:
        return None
    return (
        f"its body (Celery's protocol 1) says that it expired at {task.expires.isoformat()}; submit it anew"
    )


def why_in_vain(properties: bytes, body: bytes, *, largest: int, now: datetime) -> str | None:
    """Why sending a letter again would be in vain, as far as it tells itself; else None.

    Args:
        largest: bytes of properties that one frame has room for.
    """
    try:
        size = len(for_replay(properties, token=_SPECIMEN, attempt=Attempt(2, 1)))
    except (MalformedProperties, NotEncodable) as error:
        return f"its properties cannot be changed: {error}"
    if size > largest:
        return f"its properties do not fit into one frame ({largest} bytes)"
    return ended_by_its_body(split(properties), body, now)


def _has(properties: Properties, name: str) -> bool:
    return any(entry.key == name.encode() for entry in properties.headers or ())
