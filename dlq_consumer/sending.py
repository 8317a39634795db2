"""Publishes the letters of a replay and says of each what is known. No database here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from storage.replay_steps import Outgoing
from topology.broker_errors import (
    BrokerError,
    ChannelClosed,
    NotPublishable,
    NotSent,
    OutcomeUnknown,
    Refused,
)
from topology.headers import Attempt
from topology.messages import Message
from topology.publisher import Publisher
from topology.publishes import Publish
from topology.republish import ended_by_its_body, replayed
from topology.wire import MalformedProperties, NotEncodable, split

# Above this a message may be over the broker's size limit, which closes the channel under its neighbours.
ALONE_BYTES = 1024 * 1024
# Made ready in one turn of the loop, a few milliseconds: other batches' statements wait meanwhile.
AT_ONCE = 32
# As long as the API's relay remembers an open gate.
FRESH_S = 0.5
What = Literal["published", "unsent", "unknown", "failed"]


@dataclass(frozen=True)
class Sent:
    """What is known of one letter. `unsent` is safe to try again; `unknown` may have arrived."""

    token: str
    what: What
    why: str = ""


class _Made(NamedTuple):
    """A letter, and what goes out, or why it cannot."""

    item: Outgoing
    publish: Publish | Sent


class Sender:
    """One batch in flight at a time, so that a closed channel can be told from its cause."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._turn = asyncio.Lock()
        self._open_at: dict[str, float] = {}

    async def send(self, items: Sequence[Outgoing]) -> list[Sent]:
        """Publish all, confirmed and mandatory, to the default exchange."""
        # Beside the batch before, which waits for its confirms.
        made = await _made_ready(items)
        async with self._turn:
            waits = {
                target: why
                for target in {item.target for item in items}
                if (why := await self._gated(target))
            }
            results = [
                Sent(item.token, "unsent", waits[item.target]) for item in items if item.target in waits
            ]
            return results + await self._send([each for each in made if each.item.target not in waits])

    async def _gated(self, target: str) -> str:
        """Why nothing is to be sent to `target` now; "" where nothing is in the way."""
        asked_at = asyncio.get_running_loop().time()
        if asked_at - self._open_at.get(target, -FRESH_S) < FRESH_S:
            return ""
        self._open_at.pop(target, None)
        try:
            if await self._publisher.is_gated(target):
                return f"queue {target!r} is being migrated"
        except BrokerError as error:
            return str(error)
        self._open_at[target] = asked_at
        return ""

    async def _send(self, made: Sequence[_Made]) -> list[Sent]:
        large = [each for each in made if len(each.item.body) > ALONE_BYTES]
        small = [each for each in made if len(each.item.body) <= ALONE_BYTES]
        results = await self._publish(small, alone=len(small) == 1)
        for each in large:
            results += await self._publish([each], alone=True)
        by_token = {each.item.token: each for each in made}
        # A job's message may go out twice: so the culprit is found by sending each alone.
        for index, result in enumerate(results):
            each = by_token[result.token]
            closed = result.what == "unsent" and result.why.startswith(_CLOSED)
            if closed and each.item.generation is not None:
                (results[index],) = await self._publish([each], alone=True)
        return results

    async def _publish(self, made: Sequence[_Made], *, alone: bool) -> list[Sent]:
        """In their order."""
        ready = [each.publish for each in made if not isinstance(each.publish, Sent)]
        try:
            outcomes: Sequence[BrokerError | None] = await self._publisher.publish_all(ready)
        except NotSent as error:
            outcomes = [error] * len(ready)
        told = iter(outcomes)
        return [
            publish if isinstance(publish, Sent) else _sent(item, next(told), alone=alone)
            for item, publish in made
        ]


_CLOSED = "the channel was closed"


async def _made_ready(items: Sequence[Outgoing]) -> list[_Made]:
    made: list[_Made] = []
    for begin in range(0, len(items), AT_ONCE):
        made += [_Made(item, _publish_of(item)) for item in items[begin : begin + AT_ONCE]]
        await asyncio.sleep(0)
    return made


def _publish_of(item: Outgoing) -> Publish | Sent:
    """What goes out, or why it cannot."""
    try:
        found = split(item.properties)
        if why := ended_by_its_body(found, item.body, datetime.now(UTC)):
            return Sent(item.token, "failed", why)
        made = replayed(found, token=item.token, attempt=_attempt(item))
        return Publish("", item.target, Message(made.encode(), item.body), item.token, made)
    except (MalformedProperties, NotEncodable) as error:
        return Sent(item.token, "failed", str(error))


def _sent(item: Outgoing, error: BrokerError | None, *, alone: bool) -> Sent:
    """What the outcome of its publish means."""
    match error:
        case None:
            return Sent(item.token, "published")
        case NotPublishable() | Refused():
            return Sent(item.token, "failed", str(error))
        case NotSent():
            return Sent(item.token, "unsent", str(error))
        case ChannelClosed() if alone:
            return Sent(item.token, "failed", str(error))
        case ChannelClosed():
            return _doubt(item, f"{_CLOSED}: {error}")
        case OutcomeUnknown():
            return _doubt(item, str(error))
    raise error


def _doubt(item: Outgoing, why: str) -> Sent:
    # The claim of the job tells a second arrival; with a stranger's message nobody can.
    return Sent(item.token, "unknown" if item.generation is None else "unsent", why)


def _attempt(item: Outgoing) -> Attempt | None:
    """What the message stands for: the job's new generation; without a job, one after the message's own."""
    if item.generation is not None:
        return Attempt(item.generation, 1)
    return Attempt(item.was_generation + 1, 1) if item.was_generation is not None else None
