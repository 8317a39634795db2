"""Deliveries as nobody should send them: task messages bent field by field, and bytes of any kind."""

from __future__ import annotations

import bz2
import json
import struct
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from unittest import mock

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.cache import LRUCache
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from topology.wire import HeaderEntry, Properties, encode_value

JSON = b"application/json"
T = TypeVar("T")


@dataclass(frozen=True)
class Delivery:
    """What is published. `mark` begins its message id."""

    mark: bytes
    properties: Properties
    body: bytes


def generated(count: int, tasks: Sequence[str], number: int) -> list[Delivery]:
    """`count` deliveries, the same for the same `number`, but for times near to now."""
    made = []
    for index, (properties, tail, body) in enumerate(drawn(_deliveries(tasks), count, number)):
        mark = f"d-{index}:".encode()
        made.append(Delivery(mark, _with_id(properties, mark, tail, index), body))
    return made


def drawn(strategy: st.SearchStrategy[T], count: int, number: int) -> list[T]:
    """`count` examples, the same for the same `number` in every process.

    Hypothesis mixes in constants that it finds in the modules that happen to be imported: here it finds none.
    """
    made: list[T] = []

    @seed(number)
    @settings(
        max_examples=count, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def collect(example: T) -> None:
        if len(made) < count:
            made.append(example)

    none_found = mock.patch.object(providers, "_get_local_constants", Constants)
    with none_found, mock.patch.object(providers, "CONSTANTS_CACHE", LRUCache(1024)):
        collect()
    return made


# Raw AMQP values. RabbitMQ closes the connection over `U`, NaN and infinities: they reach no queue.
def _fixed(kind: bytes, code: str) -> st.SearchStrategy[bytes]:
    size = struct.calcsize(">" + code)
    return st.binary(min_size=size, max_size=size).map(lambda data: kind + data)


def _sized(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack(">I", len(data)) + data


_short = st.binary(max_size=12)
_texts = st.text(max_size=12) | st.sampled_from(["", "1", "[]", "\x00", "x" * 300, "../etc", "{}", "é"])
_floats = st.floats(allow_nan=False, allow_infinity=False)
_leaves = st.one_of(
    *(_fixed(kind, code) for kind, code in {
        b"t": "B", b"b": "b", b"B": "B", b"s": "h", b"u": "H", b"I": "i", b"i": "I", b"l": "q", b"L": "q",
        b"T": "Q", b"D": "Bi",
    }.items()),
    st.just(b"V"),
    _floats.map(lambda value: struct.pack(">cd", b"d", value)),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda f: struct.pack(">cf", b"f", f)),
    _texts.map(lambda text: _sized(b"S", text.encode())),
    _short.map(lambda data: _sized(b"S", data)),
    _short.map(lambda data: _sized(b"x", data)),
)  # fmt: skip


def _table(entries: dict[bytes, bytes]) -> bytes:
    return _sized(b"F", b"".join(bytes([len(key)]) + key + value for key, value in entries.items()))


# A value of any type that RabbitMQ takes, as it is on the wire.
VALUES = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda some: _sized(b"A", b"".join(some)))
        | st.dictionaries(_short, inner, max_size=3).map(_table)
    ),
    max_leaves=6,
)


def _nest(depth: int) -> bytes:
    value = b"V"
    for _ in range(depth):
        value = _sized(b"A", value)
    return value


DEEP = st.sampled_from([_nest(30), _nest(90), _nest(400), _nest(4_000)])


def _plain(*values: object) -> st.SearchStrategy[bytes]:
    return st.sampled_from([encode_value(value) for value in values])


def _times() -> st.SearchStrategy[bytes]:
    """Past, very near or no time at all: what is due far ahead would wait as long."""
    now = datetime.now(UTC)
    return _plain(
        (now - timedelta(hours=1)).isoformat(),
        (now + timedelta(seconds=1)).isoformat(),
        (now - timedelta(days=3)).replace(tzinfo=None).isoformat(),
        "", "soon", "0001-01-01T00:00:00+14:00", "2020-13-01", 5, -1, 1.5, True, [], {}, b"\xff", None,
    )  # fmt: skip


def _instead(name: str) -> st.SearchStrategy[bytes]:
    """Values for a header; those that decide about time are of a kind that ends the test."""
    match name:
        case "eta":
            return _times()
        case "expires":
            hour = timedelta(hours=1)  # far from the moment at which it is looked at
            now = datetime.now(UTC)
            return _plain((now - hour).isoformat(), (now + hour).isoformat(), "", "soon", 5, True, [], None)
        case "x-death":
            return VALUES | _plain([5], [{}], [{"queue": "work", "reason": "rejected", "count": 999}])
        case "redrive-due":
            return _plain(0, 1, -1, 2**62 + 1, "x", True, 1.5, [], None)
        case "timelimit":
            return _plain(
                [None, None], [30, 20], [0, 0], [1, 2, 3], [-1, None], "x", 5, [[], {}], [True, 1], {}
            )
        case "redrive-attempt":
            return VALUES | _plain("1.1", "1.2", "2.1", "3.7", "0.1", "1", "1.999999999", "9999999999.1")
        case "compression":
            return VALUES | _plain("gzip", "application/x-gzip", "application/x-bz2", "zstd", "")
        case "retries":
            return VALUES | _plain(0, 3, -1, 2**31 - 2, 2**31 - 1, 2**40)
    return VALUES | DEEP


_V2 = (
    "task", "id", "lang", "root_id", "parent_id", "group", "argsrepr", "kwargsrepr", "origin", "retries",
    "timelimit", "eta", "expires", "ignore_result", "shadow", "stamped_headers", "stamps", "redrive-attempt",
    "redrive-due", "redrive-outcome", "redrive-publish", "redrive-replay", "compression", "meth",
)  # fmt: skip
_OTHER = (
    "callbacks", "errbacks", "chain", "chord", "args", "kwargs", "hostname", "is_eager", "called_directly",
    "_protected", "delivery_info", "redrive", "reply_to", "correlation_id", "children", "utc", "get",
    "update",
    "x-death", "x-delivery-count", "x-first-death-queue", "x-last-death-reason", "replaced_task_nesting",
    "group_index", "redrive-probe", "redrive-moved", "redrive-moved-key", "priority", "properties", "",
)  # fmt: skip

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from([{"__type__": "datetime", "__value__": "x"}, {"__type__": "uuid", "__value__": [1]}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
_embeds = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("callbacks", "errbacks", "chain", "chord", "more"), _json)
)


@st.composite
def _deliveries(draw: st.DrawFn, tasks: Sequence[str]) -> tuple[Properties, bytes, bytes]:
    kind = draw(st.sampled_from(["v2", "v2", "v2", "v2", "v1", "anything"]))
    if kind == "anything":
        keys = st.dictionaries(_short | st.sampled_from([name.encode() for name in _V2]), VALUES, max_size=4)
        headers = {k: v for k, v in draw(keys).items() if k not in _TIMED}
        return _properties(draw, headers, JSON), draw(_short), draw(st.binary(max_size=40))
    fields: dict[str, Any] = {"task": draw(st.sampled_from(tasks)), "id": "ID", "retries": 0}
    args: Any = []
    kwargs: Any = {}
    embed: Any = {}
    for part in sorted(draw(st.sets(st.sampled_from(["args", "kwargs", "embed"]), max_size=2))):
        match part:
            case "args":
                args = draw(_json)
            case "kwargs":
                kwargs = draw(_json)
            case "embed":
                embed = draw(_json | _embeds)
    if kind == "v1":
        payload: Any = (
            fields
            | {"id": str(draw(st.uuids())), "args": args, "kwargs": kwargs}
            | (embed if isinstance(embed, dict) else {})
        )
        for name in draw(
            st.lists(st.sampled_from(["task", "id", "args", "kwargs", "retries", "utc"]), max_size=2)
        ):
            payload[name] = draw(_json)
        headers = {}
    else:
        payload = [args, kwargs, embed]
        headers = {name.encode(): encode_value(value) for name, value in fields.items()}
    for name in draw(
        st.lists(st.sampled_from(_V2 + _OTHER) if kind == "v2" else st.sampled_from(_OTHER), max_size=3)
    ):
        if draw(st.integers(0, 9)) == 0:
            headers.pop(name.encode(), None)
        else:
            headers[name.encode()] = draw(_instead(name))
    if draw(st.integers(0, 3)) == 0:
        headers |= {
            k: v for k, v in draw(st.dictionaries(_short, VALUES, max_size=2)).items() if k not in _TIMED
        }
    if b"x-death" in headers:  # its way round the ladder sets these anew
        for key in (b"redrive-attempt", b"redrive-due", b"eta"):
            headers.pop(key, None)
    body = _body(draw, payload, headers)
    return _properties(draw, headers, JSON), draw(_short), body


_TIMED = {b"eta", b"expires", b"redrive-due", b"timelimit", b"CC", b"BCC"}


def _body(draw: st.DrawFn, payload: Any, headers: dict[bytes, bytes]) -> bytes:
    body = json.dumps(payload).encode()
    match draw(st.integers(0, 15)):
        case 0:
            body = body[: draw(st.integers(0, len(body)))]
        case 1:
            body = draw(st.binary(max_size=30))
        case 2:
            place = draw(st.integers(0, len(body)))
            body = body[:place] + draw(_short) + body[place:]
        case 3:
            headers[b"compression"] = encode_value("application/x-gzip")
            body = zlib.compress(body)
        case 4:
            headers[b"compression"] = encode_value("application/x-bz2")
            body = bz2.compress(body)
        case 5:
            body = body.decode().encode(draw(st.sampled_from(["utf-16", "utf-8-sig", "utf-32-le"])))
    return body


def _properties(draw: st.DrawFn, headers: dict[bytes, bytes], content_type: bytes) -> Properties:
    table = tuple(HeaderEntry(key, value) for key, value in headers.items()) if headers else None
    made = Properties(content_type=content_type, content_encoding=b"utf-8", headers=table, delivery_mode=2)
    if draw(st.integers(0, 4)):
        return made
    text = st.binary(max_size=20) | st.sampled_from([b"application/json; charset=utf-8", b"x" * 255, b""])
    octet, time = st.integers(0, 255), st.integers(0, 2**64 - 1)
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "content_type": text, "content_encoding": text | st.sampled_from([b"utf-16", b"UTF8", b"binary"]),
        "delivery_mode": st.sampled_from([1, 2]),  # RabbitMQ 3.10 refuses others
        "priority": octet, "correlation_id": text, "reply_to": text,
        "timestamp": time, "type": text, "app_id": text, "cluster_id": text, "expiration": st.just(b"600000"),
    }  # fmt: skip
    for name in draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=3, unique=True)):
        changed: dict[str, Any] = {name: draw(st.none() | kinds[name])}
        made = made._replace(**changed)
    return made


def _with_id(properties: Properties, mark: bytes, tail: bytes, number: int) -> Properties:
    """The mark in the message id; the task id, where it was not bent, is one of its own."""
    job = encode_value(str(uuid.UUID(int=number)))
    entries = tuple(
        HeaderEntry(entry.key, job) if entry.value == encode_value("ID") else entry
        for entry in properties.headers or ()
    )
    odd = tail if number % 5 == 0 else b""
    return properties._replace(message_id=mark + odd, headers=None if properties.headers is None else entries)
