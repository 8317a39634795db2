"""No message can hurt a worker: each of these is dead-lettered, and the worker goes on."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.support.databases import Database
from tests.support.ends import Ends
from tests.support.processes import Processes
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import APP, Work
from topology.headers import DEATH_HEADERS, DELIVERY_COUNTERS
from topology.wire import HeaderEntry, Properties, RawProperties, properties, split

JSON = "application/json"
GOOD = b"[[],{},{}]"
V2 = {"task": "t.add", "id": "x"}

# (what, headers, body, content type) by their reason, from what other people's workers died of or lost.
DELIVERIES: dict[str, list[tuple[str, dict[str, Any] | None, bytes, str | None]]] = {
    "undecodable": [
        ("json cut short", V2, b"{not json", JSON),
        ("not utf-8", V2, b"\xff\xfe[[],{},{}]", JSON),
        ("byte order mark", V2, b"\xef\xbb\xbf[[],{},{}]", JSON),
        ("utf-16", V2, "[[],{},{}]".encode("utf-16"), JSON),
        ("no headers, cut short", None, b"{", JSON),
        ("text/plain", None, GOOD, "text/plain"),
        ("xml", None, b"<a/>", "application/xml"),
        ("pickle", V2, b"\x80\x04N.", "application/x-python-serialize"),
        ("pickle, no task", None, b"\x80\x04N.", "application/x-python-serialize"),
        ("no content type", None, b"\x00\x01\xff", None),
        ("no content type, task", V2, GOOD, None),
        ("gzip that is none", V2 | {"compression": "gzip"}, GOOD, JSON),
        ("unknown compression", V2 | {"compression": "zzz"}, GOOD, JSON),
        ("false datetime", V2, b'[[{"__type__":"datetime","__value__":"x"}],{},{}]', JSON),
        ("nested too deep", V2, b"[" * 100_000, JSON),
        ("charset suffix", V2, GOOD, "application/json; charset=utf-8"),
        ("empty", V2, b"", JSON),
    ],
    "malformed": [
        ("json, no task message", None, b'{"order": 5}', JSON),
        ("null", V2, b"null", JSON),
        ("number", V2, b"5", JSON),
        ("empty object", V2, b"{}", JSON),
        ("empty list", V2, b"[]", JSON),
        ("two parts", V2, b"[1,2]", JSON),
        ("no id", {"task": "t.add"}, GOOD, JSON),
        ("unknown task, no id", {"task": "nope"}, GOOD, JSON),
        ("list as task", {"task": [1], "id": "x"}, GOOD, JSON),
        ("list as id", {"task": "t.add", "id": [1]}, GOOD, JSON),
        ("v1 without id", None, b'{"task":"nope","args":[],"kwargs":{}}', JSON),
        ("v1 with an object as task", None, b'{"task":{},"id":"1"}', JSON),
        ("timelimit text", V2 | {"timelimit": "x"}, GOOD, JSON),
        ("timelimit of three", V2 | {"timelimit": [1, 2, 3]}, GOOD, JSON),
        ("stamped headers number", V2 | {"stamped_headers": 5}, GOOD, JSON),
        ("as many retries as a counter holds", V2 | {"retries": 2**31 - 1}, GOOD, JSON),
        ("more retries than a counter holds", V2 | {"retries": 2**40}, GOOD, JSON),
        ("kwargs list", V2, b'[[],["a secret"],{}]', JSON),
        ("embed list", V2, b"[[],{},[1]]", JSON),
        ("forged attempt", V2 | {"redrive-attempt": "x"}, GOOD, JSON),
        ("eta from another world", V2 | {"eta": "yesterday"}, GOOD, JSON),
    ],
    "unknown_task": [("unknown task", {"task": "nope", "id": "x"}, GOOD, JSON)],
    "expired": [("expired", V2 | {"expires": "2001-01-01T00:00:00+00:00"}, GOOD, JSON)],
}
# Of these py-amqp can read no property: header times out of its range, and a content type that is not UTF-8.
TIMES = (1_700_000_000_000, 2**62, 2**63, 2**64 - 1)


def sent() -> Iterator[tuple[str, Properties, bytes]]:
    """Reason, properties and body of each; the message id says what it is."""
    for reason, deliveries in DELIVERIES.items():
        for what, headers, body, content_type in deliveries:
            yield (
                reason,
                properties(
                    headers=headers, content_type=content_type, content_encoding="utf-8", message_id=what
                ),
                body,
            )
    for at in TIMES:
        time = HeaderEntry(b"at", b"T" + at.to_bytes(8, "big"))
        yield (
            "malformed",
            Properties(headers=(time,), content_type=b"application/json", message_id=b"time %d" % at),
            GOOD,
        )
    yield "undecodable", Properties(content_type=b"\xff\xfe", message_id=b"odd content type"), GOOD


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes)


def test_no_message_can_hurt_a_worker(vhost: Vhost, database: Database, processes: Processes) -> None:
    work = Ends(vhost, database, processes, module=APP)
    work.start_consumer()
    worker = work.start()
    before = [work.submit("t.add", x=n, y=0) for n in range(3)]
    bad = {made.message_id: (reason, made, body) for reason, made, body in sent()}
    for _, made, body in bad.values():
        work.publish(body, RawProperties(made.encode()))
    after = [work.submit("t.add", x=n, y=0) for n in range(3)]
    for job in before + after:
        work.until(job, "SUCCEEDED")

    stored = "select reason, properties, body from redrive.dead_letters"
    eventually(lambda: len(database.fetch(stored)) >= len(bad), 30, "all are stored")
    found = {}
    for letter in database.fetch(stored):
        read = split(letter["properties"])
        found[read.message_id] = (letter["reason"], without_deaths(read), letter["body"])
    assert found == {name: (reason, without_deaths(made), body) for name, (reason, made, body) in bad.items()}
    assert worker.exit_code is None
    assert worker.log.count("ready.") == 1, "it went on without a restart or a reconnect"
    work.until_settled()
    assert "a secret" not in worker.log
    assert (
        "kwargs is of type list; it must be an object action=refused reason=malformed queue=work"
        in worker.log
    )


def without_deaths(read: Properties) -> tuple[Properties, dict[bytes, object]]:
    """All but what the broker adds, the order of headers and its names of integer types."""
    added = {name.encode() for name in (*DEATH_HEADERS, *DELIVERY_COUNTERS)}
    headers = {entry.key: entry.decode() for entry in read.headers or () if entry.key not in added}
    return read.without("headers"), headers


def test_a_protocol_1_message_runs(work: Work) -> None:
    work.start()
    body = {"task": "t.flaky", "id": "v1", "args": [1], "kwargs": {}, "retries": 0}
    plain = pika.BasicProperties(content_type=JSON, content_encoding="utf-8")
    work.publish(json.dumps(body).encode(), plain)
    assert work.result("v1") == {"retries": 1, "attempt": 2}


def test_compressed_messages_run_and_are_retried(work: Work) -> None:
    work.start()
    raw = properties(
        headers={"task": "t.flaky", "id": "zip", "compression": "application/x-gzip"}, content_type=JSON
    )
    work.publish(zlib.compress(b'[[1],{},{"chain":null}]'), RawProperties(raw.encode()))
    assert work.result("zip") == {"retries": 1, "attempt": 2}


def test_a_small_message_that_decompresses_to_a_lot_does_not_fill_the_worker(work: Work) -> None:
    worker = work.start()
    bomb = zlib.compress(b'[["' + b"x" * 200_000_000 + b'"],{},{}]', 9)
    raw = properties(
        headers={"task": "t.add", "id": "bomb", "compression": "application/x-gzip"}, content_type=JSON
    )
    work.publish(bomb, RawProperties(raw.encode()))
    work.until_letters(1)
    status = Path(f"/proc/{worker.pid}/status").read_text()
    peak_kib = int(status.partition("VmHWM:")[2].split()[0])
    assert peak_kib < 300_000


def test_a_message_that_only_py_amqp_cannot_read_runs(work: Work) -> None:
    worker = work.start()
    known = properties(headers={"task": "t.flaky", "id": "odd"}, content_type=JSON, content_encoding="utf-8")
    odd = HeaderEntry(b"at", b"T" + (2**62).to_bytes(8, "big"))
    raw = known._replace(headers=(*(known.headers or ()), odd), message_id=b"\xff\xfe")
    work.publish(b"[[1],{},{}]", RawProperties(raw.encode()))
    assert work.result("odd") == {"retries": 1, "attempt": 2}
    assert worker.log.count("ready.") == 1
