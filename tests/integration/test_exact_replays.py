"""What a replay sends is what the dead-letter queue delivered, a short list apart: for messages of any kind,
through a real broker, the database and the real executor, compared on raw bytes.

`TEST_LETTERS` and `TEST_SEED` choose how many, and which.
"""

from __future__ import annotations

import os
import re
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.support.deliveries import generated
from tests.support.graveyard import Graveyard
from tests.support.raw_lists import RawList, cut, normal
from tests.support.shared import Places
from tests.support.strangers import strangers
from tests.support.waiting import eventually
from topology.messages import Message
from topology.wire import Properties

COUNT = int(os.environ.get("TEST_LETTERS", "150"))
SEED = int(os.environ.get("TEST_SEED", "1"))
# The broker's own; a replay goes without them.
COUNTERS = {b"x-delivery-count", b"x-acquired-count"}
TAKEN_OFF = COUNTERS | {
    b"x-death", b"x-first-death-queue", b"x-first-death-reason", b"x-first-death-exchange",
    b"x-last-death-queue", b"x-last-death-reason", b"x-last-death-exchange", b"CC", b"BCC", b"expires",
    b"redrive-due", b"redrive-outcome",
}  # fmt: skip
REPLACED = {b"retries", b"redrive-attempt", b"redrive-replay"}
NOT_SENT = {"expiration", "user_id"}
ATTEMPT = re.compile(rb"([1-9][0-9]{0,9})\.([1-9][0-9]{0,9})")
Key = tuple[bytes | None, bytes]


@pytest.fixture
def graveyard(places: Places) -> Iterator[Graveyard]:
    with places.fresh() as (vhost, database, processes):
        yield Graveyard(vhost, database, processes)


def messages(user: str) -> list[Message]:
    """Half of them bent task messages of both protocols, half those of other programs."""
    tasks = [
        Message(each.properties.encode(), each.body)
        for each in generated(COUNT // 2, ["orders.place", "orders.gone"], SEED)
    ]
    others = []
    for number, each in enumerate(strangers(COUNT - len(tasks) - 1, SEED, user=user)):
        # Without a message id it is the body that tells one from the other.
        id_ = None if number % 3 == 0 else b"s-%d:\xff" % number
        properties = Properties(**(vars_of(each.properties) | {"message_id": id_}))
        others.append(Message(properties.encode(), b"%d:" % number + each.body))
    return [*tasks, *others, Message(Properties().encode(), b"")]


def vars_of(properties: Properties) -> dict[str, Any]:
    return {name: getattr(properties, name) for name in Properties.__dataclass_fields__}


def keep_copies(graveyard: Graveyard) -> None:
    """A queue beside the dead-letter queue: it gets what that gets, and nobody of ours reads it."""
    with graveyard.vhost.channel() as channel:
        channel.queue_declare("copies", durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind("copies", "orders.dlx", "orders")


def take_all(graveyard: Graveyard, queue: str, count: int) -> list[tuple[bytes, bytes]]:
    """Properties and body of each, raw, as the broker delivers them."""
    found: list[tuple[bytes, bytes]] = []
    with graveyard.vhost.channel() as channel:

        def all_there() -> bool:
            while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
                found.append((cast(Any, got[1]).raw, cast(bytes, got[2])))
            return len(found) >= count

        eventually(all_there, 60, f"{count} messages in {queue}")
    return found


def by_key(found: list[tuple[bytes, bytes]]) -> dict[Key, tuple[RawList, bytes]]:
    keyed = {}
    for raw, body in found:
        fields = cut(raw)
        keyed[fields.fields.get("message_id"), body] = (fields, raw)
    assert len(keyed) == len(found), "each can be told from the others"
    return keyed


def without(headers: list[tuple[bytes, bytes]] | None, names: set[bytes]) -> list[tuple[bytes, bytes]]:
    return [entry for entry in headers or () if entry[0] not in names]


def text(value: str) -> bytes:
    return b"S" + struct.pack(">I", len(value)) + value.encode()


def expected(delivered: RawList, token: str, generation: int | None) -> RawList:
    """The list, applied by hand; headers sorted, as the broker sorts them anew."""
    headers = without(delivered.headers, TAKEN_OFF | {b"redrive-replay"})
    headers = [(key, b"I\0\0\0\0" if key == b"retries" else value) for key, value in headers]
    if generation is not None:
        headers = [*without(headers, {b"redrive-attempt"}), (b"redrive-attempt", text(f"{generation + 1}.1"))]
    fields = {name: value for name, value in delivered.fields.items() if name not in NOT_SENT}
    return RawList(fields, sorted([*headers, (b"redrive-replay", text(token))]))


def named(headers: list[tuple[bytes, bytes]] | None) -> dict[bytes, object]:
    """Headers that a replay leaves alone, less names that come twice, of which RabbitMQ 4.3 keeps one."""
    entries = without(headers, TAKEN_OFF | REPLACED)
    times = Counter(key for key, _ in entries)
    return {key: normal(value) for key, value in entries if times[key] == 1}


def test_a_replay_is_what_the_dead_letter_queue_delivered(graveyard: Graveyard) -> None:
    keep_copies(graveyard)
    graveyard.start()
    sent = messages(graveyard.address.user)
    graveyard.publish("orders", *sent)
    graveyard.reject("orders", len(sent))
    letters = graveyard.until_stored(len(sent), 60)
    delivered = by_key(take_all(graveyard, "copies", len(sent)))

    stored = by_key([(bytes(row["properties"]), bytes(row["body"])) for row in letters])
    originals = by_key([(m.properties, m.body) for m in sent])
    assert stored.keys() == delivered.keys() == originals.keys()
    for key, (kept, _) in stored.items():
        told = delivered[key][0]
        assert kept.fields == told.fields, key
        assert without(kept.headers, COUNTERS) == without(told.headers, COUNTERS), key

    done = graveyard.dlq("replay", "--queue", "orders", "--yes", "--no-wait", "--json")
    assert done.returncode == 0, done.stderr
    unsent = "select count(*) from redrive.replay_items where state in ('staged', 'publishing')"
    eventually(lambda: graveyard.database.value(unsent) == 0, 60, "all have been sent")
    items = {item["token"]: item for item in graveyard.database.fetch("select * from redrive.replay_items")}
    failed = [item["detail"] for item in items.values() if item["state"] != "published"]
    assert all("expired at" in why for why in failed), failed
    got = take_all(graveyard, "orders", len(items) - len(failed))

    rows = {row["id"]: row for row in letters}
    for raw, body in got:
        arrived = cut(raw)
        headers = dict(arrived.headers or ())
        item = items.pop(headers[b"redrive-replay"][5:].decode())
        row = rows[item["letter_id"]]
        key = arrived.fields.get("message_id"), body
        told, _ = delivered[key]
        assert key == (told.fields.get("message_id"), bytes(row["body"]))
        wanted = expected(told, item["token"], row["generation"])
        assert RawList(arrived.fields, sorted(without(arrived.headers, COUNTERS))) == wanted, key
        was = originals[key][0]
        assert arrived.fields == {name: value for name, value in was.fields.items() if name not in NOT_SENT}
        came, went = named(arrived.headers), named(was.headers)
        assert went == {name: came[name] for name in went}, key
    assert (len(got), len(items)) == (len(sent) - len(failed), len(failed)), "each was sent once"
    assert len(failed) < COUNT / 10
