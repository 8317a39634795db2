"""Thousands of bent deliveries against a live worker and a dead-letter consumer: every one is accounted for.

`TEST_DELIVERIES` and `TEST_SEED` choose how many, and which.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from tests.support.deliveries import Delivery, generated
from tests.support.ending_jobs import NAMES
from tests.support.ends import Ends
from tests.support.processes import Process
from tests.support.shared import Places
from tests.support.waiting import eventually
from topology.delivery import Refusal, TaskMessage, check_delivery, delivery_of
from topology.entities import compile_topology
from topology.headers import DEATH_HEADERS, DELIVERY_COUNTERS
from topology.names import dlq
from topology.wire import Properties, RawProperties, split
from workers.canvas.messages import CHORD, DIED

COUNT = int(os.environ.get("TEST_DELIVERIES", "2000"))
SEED = int(os.environ.get("TEST_SEED", "1"))
# Not e.fine: a number among generated arguments would have it sleep for years.
TASKS = ["e.takes", "e.takes", "e.takes", "e.raises", "e.unknown"]
BROKERS = {name.encode() for name in (*DEATH_HEADERS, *DELIVERY_COUNTERS)}
# Written or taken off by a way round the ladder.
OURS = {b"eta", b"redrive-due", b"redrive-publish", b"redrive-attempt", b"redrive-outcome"}
ANSWER_S = 30


@pytest.fixture
def place(places: Places) -> Iterator[Ends]:
    with places.fresh() as (vhost, database, processes):
        yield Ends(vhost, database, processes)


@dataclass(frozen=True)
class Told:
    """What is on record: letters by their mark, jobs by id."""

    letters: dict[bytes, list[dict[str, Any]]]
    jobs: dict[str, dict[str, Any]]


def publish(place: Ends, deliveries: list[Delivery]) -> None:
    with place.vhost.channel() as channel:
        channel.confirm_delivery()
        for each in deliveries:
            raw = cast(Any, RawProperties(each.properties.encode()))
            channel.basic_publish("", "work", each.body, raw, mandatory=True)


def told(place: Ends) -> Told:
    letters: dict[bytes, list[dict[str, Any]]] = {}
    for row in place.database.fetch(
        "select id, reason, detail, task, job_id, properties, body from redrive.dead_letters"
    ):
        mark = (split(row["properties"]).message_id or b"").partition(b":")[0] + b":"
        letters.setdefault(mark, []).append(row)
    rows = place.database.fetch("select id, type, state, reason from redrive.jobs")
    return Told(letters, {row["id"]: row for row in rows})


def bare(properties: Properties) -> tuple[object, object]:
    """What must not change: all but the broker's headers and ours, their order, names of integer types."""
    ignored = BROKERS | OURS
    headers = {entry.key: entry.decode() for entry in properties.headers or () if entry.key not in ignored}
    # The broker takes the expiration away when it dead-letters.
    rest = properties.without("headers", "expiration")
    return (headers, rest)


def settled(place: Ends) -> bool:
    """Nothing is on its way: no job waits or runs, and no queue holds a message."""
    waiting = "select count(*) from redrive.jobs where state not in ('SUCCEEDED', 'DEAD')"
    queues = [queue.name for queue in compile_topology(place.topology).queues]
    assert place.database.value(waiting) == 0
    assert {name: depth for name, depth in place.vhost.depths(queues).items() if depth} == {}
    for name in ("work", dlq("work")):
        assert (place.vhost.queue(name) or {}).get("messages") == 0, f"{name} holds unsettled messages"
    return True


def unaccounted(deliveries: list[Delivery], found: Told) -> Iterator[str]:
    """What is wrong, a line for each."""
    for each in deliveries:
        letters = found.letters.get(each.mark, [])
        reasons = [letter["reason"] for letter in letters]
        checked = check_delivery(
            delivery_of(each.properties, each.body), known_tasks=NAMES, now=datetime.now(UTC)
        )
        job = found.jobs.get(checked.id) if isinstance(checked, TaskMessage) else None
        for letter in letters:
            if letter["body"] != each.body or bare(split(letter["properties"])) != bare(each.properties):
                yield f"changed: {split(letter['properties'])!s:.1000} from {each!s:.1000}"
        if isinstance(checked, Refusal):
            expected = [[checked.reason]]
        elif job is None:
            expected = [["expired"]]
        elif job["type"] != checked.task:
            expected = [["malformed"]]  # an id that a message of another task came with first
        elif job["state"] == "SUCCEEDED":
            expected = [[]]
        else:  # a second message of one id may have been acked as a duplicate
            expected = [[job["reason"]]]
        if reasons not in expected:
            yield f"{expected} expected, {reasons}: {checked!s:.300} {job} {each!s:.1000}"


def refusals(worker: Process) -> Counter[str]:
    return Counter(re.findall(r"action=refused reason=(\w+)", worker.log))


@pytest.mark.timeout(3600)
def test_every_delivery_is_accounted_for_and_the_worker_goes_on(place: Ends) -> None:
    place.start_consumer()
    worker = place.start(concurrency=3)
    deliveries = generated(COUNT, TASKS, SEED)
    print(f"{len(deliveries)} deliveries of seed {SEED}")
    publish(place, deliveries)
    eventually(lambda: settled(place), 60 + COUNT / 20, "everything has ended", every_s=0.5)
    found = told(place)
    wrong = list(unaccounted(deliveries, found))
    assert not wrong, f"{len(wrong)} of seed {SEED}; the first: " + "\n".join(wrong[:5])
    marks = {each.mark for each in deliveries}
    # What a canvas asks for that cannot be done is the end of the job of ours that tells of a death.
    strange = {
        mark for mark, (letter, *_) in found.letters.items() if letter["task"] not in (CHORD, DIED)
    } - marks
    assert not strange, "letters of nothing that was sent"
    stored = Counter(
        letter["reason"]
        for each in deliveries
        for letter in found.letters.get(each.mark, [])
        if not isinstance(
            check_delivery(delivery_of(each.properties, each.body), known_tasks=NAMES), TaskMessage
        )
        or letter["reason"] == "expired"
    )
    assert stored == refusals(worker), "the consumer finds what the guard found"
    assert worker.exit_code is None
    assert worker.log.count("ready.") == 1, "no restart and no reconnect"
    assert "Traceback" not in "".join(re.findall(r"(?s)action=loop_failed.*", worker.log))
    place.until(place.submit("e.fine"), "SUCCEEDED", ANSWER_S)
