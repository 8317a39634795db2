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

import pytest

from tests.support.graveyard import Graveyard
from tests.support.raw_lists import RawList, cut, normal
from tests.support.shared import Places
from tests.support.strangers import any_kind
from tests.support.waiting import eventually

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


def keep_copies(graveyard: Graveyard) -> None:
    """A queue beside the dead-letter queue: it gets what that gets, and nobody of ours reads it."""
    with graveyard.vhost.channel() as channel:
        channel.queue_declare("copies", durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind("copies", "orders.dlx", "orders")


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
    # What is set stands there once, also where it came twice (as RabbitMQ 3.10 delivers it).
    if any(key == b"retries" for key, _ in headers):
        headers = [*without(headers, {b"retries"}), (b"retries", b"I\0\0\0\0")]
    if generation is not None:
        headers = [*without(headers, {b"redrive-attempt"}), (b"redrive-attempt", text(f"{generation + 1}.1"))]
    fields = {name: value for name, value in delivered.fields.items() if name not in NOT_SENT}
    return RawList(fields, sorted([*headers, (b"redrive-replay", text(token))]))


def named(headers: list[tuple[bytes, bytes]] | None) -> dict[bytes, object]:
    """Headers that a replay leaves alone, less names that come twice, of which RabbitMQ 4.3 keeps one."""
    entries = without(headers, TAKEN_OFF | REPLACED)
    times = Counter(key for key, _ in entries)
    return {key: normal(value) for key, value in entries if times[key] == 1}


def test_a_replay_is_what_the_dead_letter_queue_delivered(
    graveyard: Graveyard, broker_release: tuple[int, int]
) -> None:
    keep_copies(graveyard)
    graveyard.start()
    sent = any_kind(COUNT, SEED, user=graveyard.address.user, odd_deaths=broker_release >= (4, 0))
    graveyard.publish("orders", *sent)
    graveyard.reject("orders", len(sent))
    letters = graveyard.until_stored(len(sent), 60)
    delivered = by_key(graveyard.take_all("copies", len(sent)))

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
    got = graveyard.take_all("orders", len(items) - len(failed))

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
