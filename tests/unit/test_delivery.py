"""One function says for every delivery whether a worker may run it, and if not, why. It never raises."""

import bz2
import json
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.delivery import Delivery, Refusal, TaskMessage, check_delivery
from topology.headers import Attempt

GOOD: dict[str, Any] = {"task": "jobs.run", "id": "1"}
BODY = b"[[],{},{}]"
OURS: dict[str, Any] = {"redrive-attempt": "2.3", "redrive-due": 17}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def check(
    body: bytes = BODY, content_type: str | None = "application/json", **headers: Any
) -> TaskMessage | Refusal:
    return check_delivery(Delivery(content_type, "utf-8", headers, body), known_tasks={"jobs.run"}, now=NOW)


def reason(result: TaskMessage | Refusal) -> str | None:
    return result.reason if isinstance(result, Refusal) else None


@pytest.mark.parametrize(
    "body",
    [
        b"{not json",
        b"\xff\xfe[[],{},{}]",
        b"\xef\xbb\xbf[[],{},{}]",
        "[[],{},{}]".encode("utf-16"),
        b"",
        b'[[{"__type__":"datetime","__value__":"x"}],{},{}]',
        rb'[[{"\u005f\u005ftype__":"datetime","\u005f_value_\u005f":"x"}],{},{}]',
        b"[" * 100_000,
    ],
)
def test_a_body_that_is_no_json_is_undecodable(body: bytes) -> None:
    assert reason(check(body, **GOOD)) == "undecodable"


def test_values_that_celery_would_revive_are_revived_however_they_are_spelled() -> None:
    plain = check(b'[[{"__type__":"datetime","__value__":"2026-01-01T00:00:00+00:00"}],{},{}]', **GOOD)
    escaped = check(
        rb'[[{"\u005f_type__":"datetime","__value_\u005f":"2026-01-01T00:00:00+00:00"}],{},{}]', **GOOD
    )

    assert isinstance(plain, TaskMessage)
    assert plain.args == [NOW]
    assert escaped == plain


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/xml",
        "application/x-python-serialize",
        None,
        "application/json; charset=utf-8",
    ],
)
def test_another_content_type_is_undecodable(content_type: str | None) -> None:
    assert reason(check(content_type=content_type, **GOOD)) == "undecodable"


@pytest.mark.parametrize("compression", ["gzip", "zzz", 5, "bzip2", "application/x-gzip"])
def test_a_body_that_is_not_compressed_as_it_says_is_undecodable(compression: object) -> None:
    assert reason(check(**GOOD, compression=compression)) == "undecodable"


@pytest.mark.parametrize(
    ("compression", "compress"), [("application/x-gzip", zlib.compress), ("application/x-bz2", bz2.compress)]
)
def test_a_compressed_body_is_read(compression: str, compress: Any) -> None:
    assert isinstance(check(compress(BODY), **GOOD, compression=compression), TaskMessage)


def test_a_decompression_bomb_is_refused() -> None:
    bomb = zlib.compress(b" " * (65 * 1024 * 1024))

    assert reason(check(bomb, **GOOD, compression="application/x-gzip")) == "undecodable"


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b"5",
        b"{}",
        b"[]",
        b"[1,2]",
        b"[[],[],{}]",
        b"[[],{},[1]]",
        b'[{"a":1},{},{}]',
        b'"x"',
        b"[[],{},{},{}]",
        b'[[],{},{"callbacks":5}]',
    ],
)
def test_a_body_of_the_wrong_shape_is_malformed(body: bytes) -> None:
    assert reason(check(body, **GOOD)) == "malformed"


@pytest.mark.parametrize(
    "headers",
    [
        {"task": "jobs.run"},
        {"task": [1], "id": "1"},
        {"task": "jobs.run", "id": [1]},
        {"task": "jobs.run", "id": ""},
        {"task": "jobs.run", "id": "x" * 256},
        {"task": "jobs.run", "id": "a\x00b"},
        {"task": "", "id": "1"},
        GOOD | {"timelimit": "x"},
        GOOD | {"timelimit": [1, 2, 3]},
        GOOD | {"timelimit": [-1, None]},
        GOOD | {"stamped_headers": 5},
        GOOD | {"stamps": [1]},
        GOOD | {"retries": "x"},
        GOOD | {"retries": -1},
        GOOD | {"retries": True},
        GOOD | {"retries": 2**31 - 1},
        GOOD | {"retries": 2**40},
        GOOD | {"eta": "soon"},
        GOOD | {"eta": 5},
        GOOD | {"expires": "99-1-1"},
        GOOD | {"group": 7},
        GOOD | {"redrive-attempt": "0.1"},
        GOOD | {"redrive-attempt": 1},
        GOOD | {"redrive-attempt": "1.1000000000"},
        GOOD | {"redrive-attempt": "9999999999.1"},
        GOOD | {"redrive-due": "x"},
        GOOD | {"eta": "0001-01-01T00:00:00+14:00"},
        {},
    ],
)
def test_a_header_of_the_wrong_shape_is_malformed(headers: dict[str, Any]) -> None:
    assert reason(check(**headers)) == "malformed"


def test_a_task_that_nobody_registered_is_unknown_and_named() -> None:
    refusal = check(task="jobs.gone", id="7")

    assert refusal == Refusal("unknown_task", "no task 'jobs.gone' is registered", "jobs.gone", "7")


def test_that_it_expired_does_not_depend_on_which_tasks_are_known() -> None:
    assert reason(check(task="jobs.gone", id="7", expires="2001-01-01T00:00:00+00:00")) == "expired"


def test_an_expired_message_is_refused_and_one_that_expires_later_is_not() -> None:
    assert reason(check(**GOOD, expires=(NOW - timedelta(seconds=1)).isoformat())) == "expired"
    assert reason(check(**GOOD, expires=(NOW + timedelta(seconds=1)).isoformat())) is None


@pytest.mark.parametrize("days", [366, 368])
def test_a_time_further_away_than_a_year_is_malformed(days: int) -> None:
    when = NOW + timedelta(days=days)

    due: dict[str, Any] = {"redrive-due": int(when.timestamp() * 1000)}
    results = [check(**GOOD, eta=when.isoformat()), check(**GOOD, **due)]

    assert [reason(result) for result in results] == [None if days == 366 else "malformed"] * 2


@pytest.mark.parametrize("far", [{"eta": "9999-12-31T23:59:59+00:00"}, {"redrive-due": 2**62}])
def test_the_latest_times_there_are_are_malformed_too(far: dict[str, Any]) -> None:
    assert reason(check(**GOOD, **far)) == "malformed"


def test_a_well_formed_message_is_read() -> None:
    message = check(
        b'[[1],{"a":2},{"chain":null}]',
        **GOOD,
        retries=2,
        eta="2026-01-01T00:00:05",
        timelimit=[10, 5.5],
        root_id="r",
        **OURS,
    )

    assert isinstance(message, TaskMessage)
    assert (message.args, message.kwargs, message.retries, message.root_id) == ([1], {"a": 2}, 2, "r")
    assert (message.eta, message.timelimit) == (NOW + timedelta(seconds=5), (10, 5.5))
    assert (message.attempt, message.due_ms, message.protocol) == (Attempt(2, 3), 17, 2)


def test_a_message_of_protocol_1_is_read() -> None:
    message = check(
        json.dumps({"task": "jobs.run", "id": "1", "args": [1], "kwargs": {"a": 2}, "retries": 1}).encode()
    )

    assert isinstance(message, TaskMessage)
    assert (message.id, message.args, message.kwargs, message.retries, message.protocol) == (
        "1",
        [1],
        {"a": 2},
        1,
        1,
    )


@pytest.mark.parametrize(
    "body", [{"task": "nope", "args": [], "kwargs": {}}, {"task": {}, "id": "1"}, {"id": "1"}]
)
def test_a_broken_message_of_protocol_1_is_malformed(body: dict[str, Any]) -> None:
    assert reason(check(json.dumps(body).encode())) == "malformed"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    [
        "task",
        "id",
        "retries",
        "eta",
        "expires",
        "timelimit",
        "stamps",
        "stamped_headers",
        "compression",
        "group",
        "redrive-attempt",
        "redrive-due",
        "argsrepr",
    ]
)


@given(
    st.binary() | values.map(lambda value: repr(value).encode("utf-8", "replace")),
    st.sampled_from(["application/json", None, "x"]),
    st.dictionaries(names, values) | st.dictionaries(names, values).map(lambda more: GOOD | more),
)
def test_it_never_raises(body: bytes, content_type: str | None, headers: dict[str, Any]) -> None:
    result = check_delivery(Delivery(content_type, None, headers, body), known_tasks={"jobs.run"}, now=NOW)

    assert isinstance(result, TaskMessage | Refusal)
