"""Celery's own messages, with whatever their sender put in, come back from every lap as they were sent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from amqp.basic_message import Message as AmqpMessage
from celery import Celery, chord, group
from celery.app.amqp import task_message
from hypothesis import given, settings
from hypothesis import strategies as st
from kombu.compression import compress, decompress
from kombu.serialization import dumps

from topology.headers import ATTEMPT, DEATH_HEADERS, DUE, PUBLISH, Attempt
from topology.wire import HeaderEntry, Properties, split
from workers.republish import Protocol, again, postponed, retried

app = Celery("plain", set_as_current=False)
OURS = {ATTEMPT.encode(), PUBLISH.encode(), DUE.encode()}
NAMES = st.text("abcdefghij-_", min_size=1, max_size=12).map(lambda name: f"h-{name}")
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
TIMES = st.integers(1_800_000_000, 3_000_000_000).map(lambda second: datetime.fromtimestamp(second, UTC))
# What py-amqp can put into a table: every type that it knows.
AMQP_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
    | st.text() | st.binary() | TIMES.map(lambda at: at.replace(microsecond=0, tzinfo=None))
    | st.decimals(-1000, 1000, places=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


def add(x: int) -> Any:
    return app.signature("add", args=(x,))


CANVAS = st.sampled_from(
    [
        {},
        {"chain": [dict(add(1)), dict(add(2))]},
        {"callbacks": [dict(add(1))], "errbacks": [dict(add(2))]},
        {"chord": dict(chord([add(1)], body=add(3), app=app))},
        {"chain": [dict(group(add(1), add(2), app=app))], "group_id": "g", "group_index": 2},
    ]
)
SENT = st.fixed_dictionaries(
    {
        "args": st.lists(JSON_VALUES, max_size=3),
        "kwargs": st.dictionaries(st.text(min_size=1), JSON_VALUES, max_size=3),
        "canvas": CANVAS,
        "retries": st.integers(0, 100),
        "root_id": st.text(max_size=20),
        "parent_id": st.none() | st.text(max_size=20),
        "reply_to": st.none() | st.text(max_size=20),
        "expires": st.none() | TIMES,
        "eta": st.none() | TIMES,
        "time_limit": st.none() | st.integers(1, 1000),
        "soft_time_limit": st.none() | st.integers(1, 1000),
        "shadow": st.none() | st.text(max_size=9),
        "stamps": st.dictionaries(NAMES, st.text(), max_size=2),
        "headers": st.dictionaries(NAMES, AMQP_VALUES, max_size=4),
        "priority": st.none() | st.integers(0, 255),
        "compression": st.none() | st.sampled_from(["zlib", "bzip2"]),
        "delivery_mode": st.sampled_from([1, 2]),
        "expiration": st.none() | st.just("5000"),
        "protocol": st.sampled_from([1, 2]),
    }
)


def published(sent: dict[str, Any]) -> tuple[bytes, bytes]:
    """What kombu and py-amqp put on the wire for a Celery publish."""
    options = {name: sent[name] for name in ("retries", "root_id", "parent_id", "reply_to", "expires", "eta",
                                             "time_limit", "soft_time_limit", "shadow")}  # fmt: skip
    options |= sent["canvas"] | {"args": sent["args"], "kwargs": sent["kwargs"]}
    if sent["protocol"] == 2:
        stamped = {"stamped_headers": list(sent["stamps"]), **sent["stamps"]}
        made: task_message = app.amqp.as_task_v2("id-1", "add", **options, **stamped)
    else:
        made = app.amqp.as_task_v1("id-1", "add", **options)
    headers = {**made.headers, **sent["headers"]}
    kind, encoding, body = dumps(made.body, serializer="json")
    if sent["compression"]:
        body, headers["compression"] = compress(body, sent["compression"])
    properties = {name: value for name, value in made.properties.items() if value is not None}
    for name in ("priority", "delivery_mode", "expiration"):
        if sent[name] is not None:
            properties[name] = sent[name]
    message = AmqpMessage(
        body, content_type=kind, content_encoding=encoding, application_headers=headers, **properties
    )
    raw: bytes = message._serialize_properties()
    return raw, body if isinstance(body, bytes) else body.encode()


def kept(found: Properties, *changed: str) -> tuple[Properties, list[HeaderEntry]]:
    """Everything but what a lap changes: the other properties, and the headers in their order."""
    left_out = OURS | {name.encode() for name in changed}
    headers = [entry for entry in found.headers or () if entry.key not in left_out]
    return found.without("headers", "expiration"), headers


def payload(protocol: int, found: Properties, body: bytes) -> Any:
    method = found.get_header("compression")
    return json.loads(decompress(body, method) if method else body)


@settings(max_examples=60, deadline=None)
@given(sent=SENT, laps=st.integers(1, 4))
def test_a_way_round_changes_no_byte_of_the_body_and_none_of_the_rest(
    sent: dict[str, Any], laps: int
) -> None:
    raw, body = published(sent)
    before, now, now_body = split(raw), raw, body
    for lap in range(laps):
        died = split(now).with_header("x-death", [{"count": 9, "queue": "work"}])
        message = again(
            died.encode(), now_body, attempt=Attempt(1, 2 + lap), token=f"t{lap}", due_ms=lap or None
        )
        now, now_body = message.properties, message.body
    after = split(now)
    assert now_body == body
    assert kept(after) == kept(before)
    assert after.expiration is None
    assert (after.get_header(ATTEMPT), after.get_header(PUBLISH)) == (f"1.{1 + laps}", f"t{laps - 1}")
    assert not set(DEATH_HEADERS) & {str(name) for name in after.headers_dict()}


@settings(max_examples=60, deadline=None)
@given(sent=SENT, laps=st.integers(1, 4))
def test_a_retry_changes_its_count_and_nothing_else(sent: dict[str, Any], laps: int) -> None:
    raw, body = published(sent)
    protocol: Protocol = sent["protocol"]
    before, now, now_body = split(raw), raw, body
    for lap in range(laps):
        message = retried(
            now, now_body, protocol=protocol, attempt=Attempt(1, 2 + lap), token=f"t{lap}", due_ms=None,
            retries=sent["retries"] + lap + 1,
        )  # fmt: skip
        now, now_body = message.properties, message.body
    after = split(now)
    changed = {"retries": sent["retries"] + laps, "eta": None}
    if protocol == 2:
        assert now_body == body
        assert kept(after, "retries", "eta") == kept(before, "retries", "eta")
        assert {name: after.get_header(name) for name in changed} == changed
    else:
        assert kept(after, "compression") == kept(before, "compression")
        assert payload(1, after, now_body) == payload(1, before, body) | changed


@settings(max_examples=40, deadline=None)
@given(sent=SENT)
def test_waiting_for_its_time_takes_the_eta_and_nothing_else(sent: dict[str, Any]) -> None:
    raw, body = published(sent)
    message = postponed(raw, body, protocol=sent["protocol"], attempt=Attempt(), token="t", due_ms=None)
    before, after = split(raw), split(message.properties)
    if sent["protocol"] == 2:
        assert message.body == body
        assert kept(after, "eta") == kept(before, "eta")
        assert after.get_header("eta") is None
    else:
        assert kept(after, "compression") == kept(before, "compression")
        assert payload(1, after, message.body) == payload(1, before, body) | {"eta": None}


@settings(max_examples=40, deadline=None)
@given(sent=SENT, args=st.lists(JSON_VALUES, max_size=2))
def test_other_arguments_leave_the_rest(sent: dict[str, Any], args: list[Any]) -> None:
    raw, body = published(sent)
    before = split(raw)
    old = payload(sent["protocol"], before, body)
    embed = old[2] if sent["protocol"] == 2 else {}
    message = retried(
        raw, body, protocol=sent["protocol"], attempt=Attempt(1, 2), token="t", due_ms=None, retries=7,
        arguments=json.dumps([args, {"k": 1}, embed]).encode(),
    )  # fmt: skip
    after = split(message.properties)
    new = payload(sent["protocol"], after, message.body)
    assert kept(after, "retries", "eta", "compression") == kept(before, "retries", "eta", "compression")
    if sent["protocol"] == 2:
        assert new == [args, {"k": 1}, embed]
    else:
        assert new == old | {"args": args, "kwargs": {"k": 1}, "retries": 7, "eta": None}


def test_the_messages_of_this_test_are_celerys() -> None:
    """Its maker is checked against a publish of kombu's, so that the properties above are about real ones."""
    from kombu import Connection, Exchange, Producer, Queue

    with Connection("memory://") as connection:
        channel = connection.channel()
        queue = Queue("q", Exchange("e"), routing_key="q", channel=channel)
        queue.declare()
        made = app.amqp.as_task_v2("id-1", "add", args=(1,))
        Producer(channel, Exchange("e"), "q").publish(
            made.body,
            headers=made.headers,
            serializer="json",
            **{k: v for k, v in made.properties.items() if v},
        )
        got = queue.get()
        assert got is not None
    raw, body = published(
        dict.fromkeys(("root_id", "parent_id", "reply_to", "expires", "eta", "time_limit", "soft_time_limit",
                       "shadow", "priority", "compression", "expiration"))
        | {"args": [1], "kwargs": {}, "canvas": {}, "retries": 0, "stamps": {}, "headers": {},
           "delivery_mode": 2, "protocol": 2}
    )  # fmt: skip
    assert json.loads(body) == json.loads(got.body)
    found = split(raw)
    assert {str(name) for name in found.headers_dict()} == set(got.headers)
    assert (found.text("content_type"), found.text("correlation_id")) == (got.content_type, "id-1")


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_compressed_message_stays_readable(protocol: Protocol) -> None:
    headers: dict[str, object] = {"compression": "application/x-gzip"}
    text = b"[[1],{},{}]" if protocol == 2 else b'{"task":"t","id":"1","args":[1],"kwargs":{}}'
    body, _ = compress(text, "zlib")
    raw = Properties(content_type=b"application/json").with_header("compression", headers["compression"])
    message = retried(
        raw.encode(), body, protocol=protocol, attempt=Attempt(1, 2), token="t", due_ms=None, retries=1
    )
    found = payload(protocol, split(message.properties), message.body)
    assert (found[0] if protocol == 2 else found["args"]) == [1]
