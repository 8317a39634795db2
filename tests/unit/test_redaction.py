"""Values taken out of messages before they are stored."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.messages import Message, task_message
from topology.redaction import REDACTED, parse_paths, redact, unfilled
from topology.wire import properties, split

PAYMENT = {"card": {"number": "4111", "owner": "Ada"}, "items": [{"pin": 1}, {"pin": 2}], "amount": 1.10}


def plain(body: bytes, **headers: object) -> Message:
    return Message(properties(headers=headers or None, content_type="application/json").encode(), body)


def test_arguments_of_a_task_and_what_spells_them_out() -> None:
    message = task_message("j", "payments.charge", PAYMENT)
    made, found = redact(
        message, parse_paths("kwargs.card.number, kwargs.items.*.pin, kwargs.missing, args.0")
    )
    assert found == ("kwargs.card.number", "kwargs.items.*.pin")
    _, kwargs, embed = json.loads(made.body)
    assert kwargs == {
        "card": {"number": REDACTED, "owner": "Ada"}, "items": [{"pin": REDACTED}] * 2, "amount": 1.1,
    }  # fmt: skip
    assert embed.keys() == {"callbacks", "errbacks", "chain", "chord"}
    assert b"4111" not in made.properties + made.body
    before, after = split(message.properties), split(made.properties)
    assert after.get_header("kwargsrepr") == REDACTED
    left = ("argsrepr", "kwargsrepr")
    assert after.without_headers(left) == before.without_headers(left)


def test_celerys_first_protocol_and_bodies_of_strangers() -> None:
    old = json.dumps({"task": "t", "id": "i", "args": ["secret", 1], "kwargs": {"pin": 5}}).encode()
    made, found = redact(plain(old), parse_paths("args.0,kwargs.pin"))
    assert (json.loads(made.body)["args"], json.loads(made.body)["kwargs"]) == (
        [REDACTED, 1],
        {"pin": REDACTED},
    )
    assert found == ("args.0", "kwargs.pin")
    made, found = redact(plain(b'{"password": {"x": 1}, "n": 1.50}'), parse_paths("body.password"))
    assert (made.body, found) == (b'{"password": "[redacted]", "n": 1.50}', ("body.password",))


def test_a_header_is_taken_out_wherever_it_stands() -> None:
    made, found = redact(
        plain(b"no JSON", authorization="Basic x", n=1), parse_paths("headers.authorization")
    )
    assert (split(made.properties).headers_dict(), found) == (
        {"authorization": REDACTED, "n": 1}, ("headers.authorization",),
    )  # fmt: skip
    assert made.body == b"no JSON"


def test_a_compressed_body_is_taken_apart() -> None:
    message = plain(zlib.compress(b'{"pin": 1}'), compression="application/x-gzip")
    made, _ = redact(message, parse_paths("body.pin"))
    assert (made.body, split(made.properties).get_header("compression")) == (b'{"pin": "[redacted]"}', None)


@pytest.mark.parametrize("body", [b'{"pin": 1, "pin": 2}', b'{"a": {"pin": 1}, "a": 2}'])
def test_a_value_does_not_hide_behind_another_of_the_same_key(body: bytes) -> None:
    made, _ = redact(plain(body), parse_paths("body.pin,body.a.pin"))
    assert b"1" not in made.body


def test_where_nothing_is_found_every_byte_stays() -> None:
    message = plain(b'{"n":1.50}', a=1)
    assert redact(message, parse_paths("body.pin,headers.b,kwargs.x.y")) == (message, ())
    assert redact(Message(b"\xff", b"x"), parse_paths("body.pin"))[0] == Message(b"\xff", b"x")


@pytest.mark.parametrize(
    ("encoding", "named"),
    [
        ("utf-8-sig", None), ("utf-8-sig", "utf-8"), ("utf-16", None), ("utf-16-le", "utf-16"),
        ("utf-32-be", "unheard of"), ("latin-1", "latin-1"), ("cp1252", "windows-1252"),
    ],
)  # fmt: skip
def test_json_in_another_encoding_is_read_and_is_in_utf_8_then(encoding: str, named: str | None) -> None:
    given = properties(content_encoding=named).encode()
    paths = parse_paths("body.pin")
    made, found = redact(Message(given, '{"pin": "é1", "a": "ü"}'.encode(encoding)), paths)
    assert (made.body, found) == (b'{"pin": "[redacted]", "a": "\\u00fc"}', ("body.pin",))
    assert split(made.properties).text("content_encoding") == (named and "utf-8")
    assert unfilled(made, paths) == ["body.pin"]
    other = Message(given, '{"nip": "é"}'.encode(encoding))
    assert redact(other, paths) == (other, ())


def test_a_number_of_any_length_hides_nothing() -> None:
    digits = b"9" * 5_000
    made, found = redact(plain(b'{"n": ' + digits + b', "pin": ' + digits + b"}"), parse_paths("body.pin"))
    assert (made.body, found) == (b'{"n": ' + digits + b', "pin": "[redacted]"}', ("body.pin",))


@pytest.mark.parametrize("body", [b"\xff\x00", b"[" * 50_000, b'{"pin": 1'])
def test_what_cannot_be_read_is_kept_but_for_what_spells_it_out(body: bytes) -> None:
    message = plain(body, task="t", kwargsrepr="{'pin': 1}")
    made, found = redact(message, parse_paths("kwargs.pin"))
    assert (made.body, found) == (body, ())
    assert split(made.properties).headers_dict() == {"task": "t", "kwargsrepr": REDACTED}


def test_what_is_not_filled_in_again_is_told() -> None:
    paths = parse_paths("kwargs.card.number,headers.key")
    made, _ = redact(task_message("j", "t", PAYMENT), paths)
    assert unfilled(made, paths) == ["kwargs.card.number"]
    assert unfilled(task_message("j", "t", PAYMENT), paths) == []


JSON = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=3),
    max_leaves=10,
)
PATHS = parse_paths("kwargs.a.b, args.0.a, body.a.*.b, body.b.*, headers.h")


@given(
    body=st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()),
    headers=st.binary(max_size=40),
)
def test_no_bytes_make_it_fail_and_nothing_is_found_a_second_time(body: bytes, headers: bytes) -> None:
    redact(Message(headers, body), PATHS)
    made, found = redact(plain(body, h="x", kwargsrepr="y"), PATHS)
    assert redact(made, PATHS) == (made, found)
    assert set(unfilled(made, PATHS)) == set(found)


@pytest.mark.parametrize(
    "text", ["card", "kwargs", "kwargs.", "kwargs..a", "head.x", "headers.a.b", "headers.*", "body.a,x"]
)
def test_a_path_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"path of a field|one header"):
        parse_paths(text)


def test_names_with_dots_and_commas() -> None:
    value: Any = {"a.b,c%": 1}
    made, _ = redact(plain(json.dumps(value).encode()), parse_paths("body.a%2Eb%2Cc%25"))
    assert json.loads(made.body) == {"a.b,c%": REDACTED}
