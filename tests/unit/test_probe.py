"""A probe is known by its whole shape; whatever differs is a message like any other."""

from __future__ import annotations

from uuid import UUID

import pytest

from topology.headers import PROBE, PUBLISH
from topology.probe import (
    Arrival,
    Probe,
    answer_message,
    arrival,
    parse_answer,
    probe_message,
    probe_of,
)
from topology.wire import HeaderEntry, Properties, split

ID = UUID("0b6a4f5e-6a0e-4d38-9a0e-1f0f5b3f0c11")
PROBE_1 = Probe(ID, "amq.gen-abc")
SENT = split(probe_message(PROBE_1, expires_ms=5000, priority=9).properties)
DEATHS = [
    {"queue": "jobs", "reason": "rejected", "count": 1},
    {"queue": "jobs.retry.1s", "reason": "expired"},
]


def test_a_probe_is_recognised_before_and_after_it_was_dead_lettered() -> None:
    dead = SENT.without("expiration").with_header("x-death", DEATHS).with_header("x-delivery-count", 1)
    assert probe_of(SENT.encode(), b"") == PROBE_1
    assert probe_of(dead.encode(), b"") == PROBE_1
    assert arrival(PROBE_1, "jobs.dlq", dead.encode()) == Arrival(
        ID, "jobs.dlq", (("jobs", "rejected"), ("jobs.retry.1s", "expired"))
    )


TWICE = (*(SENT.headers or ()), (SENT.headers or ())[0])
OTHERS: dict[str, Properties] = {
    "a task": SENT.with_header("task", "payments.charge_order"),
    "an id": SENT.with_header("id", "x"),
    "another header": SENT.with_header("x-mine", 1),
    "no uuid": SENT.with_header(PROBE, "x").with_header(PUBLISH, "x"),
    "a uuid in capitals": SENT.with_header(PROBE, str(ID).upper()).with_header(PUBLISH, str(ID).upper()),
    "a number": SENT.with_header(PROBE, 1).with_header(PUBLISH, 1),
    "another token": SENT.with_header(PUBLISH, "x"),
    "the header alone": SENT.without_headers((PUBLISH,)),
    "no header": SENT.without_headers((PROBE,)),
    "no headers": SENT.without("headers"),
    "the header twice": SENT._replace(headers=TWICE),
    "JSON": SENT._replace(content_type=b"application/json"),
    "no type": SENT.without("content_type"),
    "an answer to a queue that somebody named": SENT._replace(reply_to=b"payments"),
    "no answer asked": SENT.without("reply_to"),
    "a message id": SENT._replace(message_id=b"1"),
    "an odd header": SENT._replace(headers=(*(SENT.headers or ()), HeaderEntry(b"\xff", b"V"))),
    "an unknown flag": SENT._replace(undefined_flags=(2,)),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_whatever_differs_is_no_probe(other: Properties) -> None:
    assert probe_of(other.encode(), b"") is None


def test_a_body_makes_it_a_message_and_broken_properties_too() -> None:
    assert probe_of(SENT.encode(), b" ") is None
    assert probe_of(SENT.encode()[:-1], b"") is None
    assert probe_of(b"", b"") is None


def test_an_answer_says_what_was_found() -> None:
    found = Arrival(ID, "jobs.dlq", (("jobs", "rejected"),))
    assert parse_answer(answer_message(found, "t").body) == found


@pytest.mark.parametrize("body", [b"", b"1", b"{}", b'{"probe":"x","queue":"q","deaths":[]}', b"\xff", b"[]"])
def test_anything_else_is_no_answer(body: bytes) -> None:
    assert parse_answer(body) is None
