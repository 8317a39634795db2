"""Letters of programs that route in ways of their own: sent again, dead again, and with odd keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.support.graveyard import Graveyard, plain
from tests.support.shared import Places
from tests.support.waiting import eventually
from topology.deaths import deaths
from topology.messages import Message
from topology.wire import RawProperties, split

WORK, DEAD = "theirs", "theirs.dead"
# A key that is not UTF-8 has RabbitMQ, 3.10 and 4.3, close the publisher's connection.
KEYS = [b"email.send", b"email.n\x00l", b"email.", b"email." + b"x" * 249]


class Foreign(Graveyard):
    """A topic exchange, and a work queue without a dead-letter key of its own."""

    def declare(self) -> None:
        with self.vhost.channel() as channel:
            channel.exchange_declare("theirs.topic", "topic", durable=True)
            channel.exchange_declare("theirs.dlx", "direct", durable=True)
            channel.queue_declare(WORK, durable=True, arguments={"x-dead-letter-exchange": "theirs.dlx"})
            channel.queue_declare(DEAD, durable=True)
            channel.queue_bind(WORK, "theirs.topic", "email.#")
            # By the queue's name too: a message that a replay sent has it as its key.
            for key in ("email.send", WORK):
                channel.queue_bind(DEAD, "theirs.dlx", key)

    def send(self, key: bytes, message: Message) -> None:
        with self.vhost.channel() as channel:
            channel.confirm_delivery()
            raw = cast(Any, RawProperties(message.properties))
            channel.basic_publish("theirs.topic", cast(Any, key), message.body, raw, mandatory=True)

    def replay(self, letter: int) -> dict[str, Any]:
        done = self.dlq_here("replay", str(letter), "--no-wait", "--json")
        assert done.exit_code == 0, done.stderr
        plan = "select * from redrive.replay_items where letter_id = $1"
        eventually(lambda: self.database.fetch(plan, letter)[0]["state"] in ("published", "failed"), 20)
        found: dict[str, Any] = self.database.fetch(plan, letter)[0]
        return found


@pytest.fixture
def foreign(places: Places) -> Iterator[Foreign]:
    with places.fresh() as place:
        made = Foreign(*place)
        made.declare()
        made.start(REDRIVE_WATCH=DEAD).wait_for_log(f"draining {DEAD}")
        yield made


def test_a_replayed_letter_dies_again_and_is_the_next_of_the_first(foreign: Foreign) -> None:
    foreign.send(b"email.send", plain(b"x", message_id="theirs"))
    foreign.reject(WORK)
    (first,) = foreign.until_stored(1)
    assert (first["target"], first["routing_key"]) == (WORK, "email.send")

    assert foreign.replay(first["id"])["state"] == "published"
    foreign.reject(WORK)
    _, second = foreign.until_stored(2)
    assert foreign.shown(second["id"])["replay_of"] == first["id"]
    assert second["routing_key"] == WORK
    (death,) = deaths(split(bytes(second["properties"])))
    assert (death.queue, death.count) == (WORK, 1), "its history began anew"

    with foreign.vhost.channel() as channel:
        channel.queue_delete(WORK)
    refused = foreign.dlq_here("replay", str(second["id"]), "--no-wait")
    assert (refused.exit_code, f"there is no queue {WORK}" in refused.stderr) == (1, True)
    states = {letter["id"]: letter["state"] for letter in foreign.listed()}
    assert states == {first["id"]: "replayed", second["id"]: "open"}


def test_a_routing_key_may_be_what_the_broker_takes(foreign: Foreign) -> None:
    with foreign.vhost.channel() as channel:
        for key in KEYS:
            channel.queue_bind(DEAD, "theirs.dlx", cast(Any, key))
    for number, key in enumerate(KEYS):
        foreign.send(key, plain(b"%d" % number, message_id=str(number)))
    foreign.reject(WORK, len(KEYS))
    letters = foreign.until_stored(len(KEYS))
    assert [bytes(row["body"]) for row in letters] == [b"%d" % number for number in range(len(KEYS))]
    assert {(row["state"], row["target"]) for row in letters} == {("open", WORK)}
    for row in letters:
        shown = foreign.dlq_here("show", str(row["id"]), "--json")
        assert json.loads(shown.stdout)["deaths"][0]["queue"] == WORK
        assert foreign.replay(row["id"])["state"] == "published"
        assert foreign.take(WORK)[2] == bytes(row["body"])
