"""Whatever a letter holds is shown as strict JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.letter_view import MAX_SHOWN_BYTES, view_body, view_properties
from topology.wire import properties


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"a": [1, null, "x"]}', {"json": {"a": [1, None, "x"]}}),
        (b"", {"text": ""}),
        (b"not json", {"text": "not json"}),
        (b"\x00\xff", {"hex": "00ff"}),
        (b'"a\\u0000b"', {"json": "a\x00b"}),
        (b'"\\ud800"', {"json": "\\ud800"}),
        (b'{"\\ud800": 1}', {"json": {"\\ud800": 1}}),
        (rb'{"\ud800":1,"\\ud800":2}', {"json": {r"\ud800": 1, r"\\ud800": 2}}),
        (b'"\\\\u0000 \\\\new"', {"json": "\\u0000 \\new"}),
        (b"[NaN, -Infinity]", {"json": [{"$float": "NaN"}, {"$float": "-Infinity"}]}),
        (b"1e400", {"json": {"$float": "Infinity"}}),
        (b'{"a":1,"a":2}', {"json": {"$pairs": [["a", 1], ["a", 2]]}}),
        (b"123456789012345678901234567890", {"json": 123456789012345678901234567890}),
        (b"[" * 100_000, {"text": "[" * 100_000}),
        (b"[" * 200 + b"]" * 200, {"text": "[" * 200 + "]" * 200}),
    ],
)  # fmt: skip
def test_a_body_is_shown_as_what_it_is(body: bytes, shown: dict[str, Any]) -> None:
    assert view_body(body) == shown


def test_a_long_body_is_cut_between_characters_and_says_so() -> None:
    text = "ä" * MAX_SHOWN_BYTES
    shown = view_body(b"x" + text.encode())
    assert shown["truncated"] is True
    assert str(shown["text"]) == "x" + "ä" * ((MAX_SHOWN_BYTES - 1) // 2)
    assert view_body(b"\xff" * (2 * MAX_SHOWN_BYTES))["truncated"] is True


@given(st.binary(max_size=200))
def test_any_bytes_are_shown_as_strict_json(raw: bytes) -> None:
    json.dumps(view_body(raw), allow_nan=False, ensure_ascii=False).encode("utf-8")
    view = view_properties(raw)
    json.dumps([view.headers, view.deaths, view.properties], allow_nan=False, ensure_ascii=False).encode(
        "utf-8"
    )


def test_properties_are_shown_with_the_history_in_words() -> None:
    raw = properties(
        message_id="m",
        headers={"x-death": [{"queue": "orders", "reason": "delivery_limit", "count": 2}], "n": 0.5},
    )
    view = view_properties(raw.encode())
    assert view.properties == {"message_id": "m"}
    assert view.deaths[0]["words"] == (
        "returned more often than the delivery limit allows in orders, 2 times"
    )
    assert isinstance(view.headers, dict)
    assert view.headers["n"] == 0.5
