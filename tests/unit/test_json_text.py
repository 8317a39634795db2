"""Strict JSON in, any stored JSON out."""

from __future__ import annotations

import contextlib
import json
import time
import tracemalloc

import pytest

from api.json_text import MAX_DEPTH, JsonFault, JsonResponse, encode, parse
from storage.stored_json import stored


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        (b'{"payload": {"a": [1, NaN]}}', "payload.a.1", "NaN"),
        (b'{"a": -Infinity}', "a", "-Infinity"),
        (b'{"payload": {"amount": 1e400}}', "payload.amount", "range of a double"),
        (b'{"a": {"b": 1, "b": 1}}', "a.b", "twice"),
        (b'{"a": [1, 1e999], "a": 2}', "a", "twice"),
        (b'{"n": ' + b"9" * 500 + b"}", "n", "400 digits"),
        (b"[" * 70 + b"]" * 70, ".".join("0" * 64), "64 levels"),
        (b"[" * 100_000, "", "64 levels"),
        (b'{"a":' * 100_000, "", "64 levels"),
    ],
)
def test_what_is_not_taken_is_named_with_its_path(text: bytes, path: str, words: str) -> None:
    with pytest.raises(JsonFault, match=words) as caught:
        parse(text)
    assert caught.value.path == path
    assert not caught.value.syntax


def test_many_children_under_a_long_key_take_no_memory_for_their_paths() -> None:
    key, children = b"k" * 500_000, 20_000
    text = b'{"' + key + b'": [' + b",".join([b"[]"] * children) + b"]}"
    tracemalloc.start()
    try:
        parse(text)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 20_000_000  # a path for each child would be 10 GB


def test_the_path_of_a_fault_has_a_bounded_length() -> None:
    key = b"k" * 10_000
    with pytest.raises(JsonFault) as caught:
        parse(b'{"' + key + b'": {"' + key + b'": {"' + key + b'": {"x": NaN}}}}')
    assert len(caught.value.path) <= 305
    assert caught.value.path.startswith("k" * 99 + "….k")


@pytest.mark.parametrize(
    "text", [b"", b"{", b"{'a': 1}", b'{"a": 1} x', b"\xff\xfe", b'"\xed\xa0\x80"', b"\xef\xbb\xbf{}"]
)
def test_what_is_no_json_is_a_fault_of_syntax(text: bytes) -> None:
    with pytest.raises(JsonFault) as caught:
        parse(text)
    assert caught.value.syntax


def test_allowed_values_arrive_as_they_are() -> None:
    text = b'{"nul": "\\u0000", "lone": "\\ud800", "big": 12345678901234567890123, "tiny": 1e-400, "n": null}'
    assert parse(text) == {
        "nul": "\x00",
        "lone": "\ud800",
        "big": 12345678901234567890123,
        "tiny": 0.0,
        "n": None,
    }
    deep = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert json.dumps(parse(deep)).encode() == deep


def test_encoding_is_canonical_and_keeps_lone_surrogates() -> None:
    assert (
        encode({"b": "\ud800", "a": "é"})
        == encode({"a": "é", "b": "\ud800"})
        == b'{"a":"\\u00e9","b":"\\ud800"}'
    )
    assert parse(encode({"b": "\ud800\x00"})) == {"b": "\ud800\x00"}


def test_stored_json_that_is_none_of_strict_json_is_shown_tagged() -> None:
    value = stored(b'{"a": NaN, "b": [-Infinity, 1e999, -1e999], "c": "\\ud800", "d": 1.5}')
    assert value == {
        "a": {"$float": "NaN"},
        "b": [{"$float": "-Infinity"}, {"$float": "Infinity"}, {"$float": "-Infinity"}],
        "c": "\ud800",
        "d": 1.5,
    }
    assert json.loads(bytes(JsonResponse(value).body)) == value
    assert stored(None) is None


@pytest.mark.parametrize(
    "text",
    [
        b'"' + b',\\"' * 300_000,
        b'["' + b"," * 900_000 + b'"]',
        b'["' + b'\\",' * 300_000 + b'"]',
        b'",,,,,,,,,,,,' + b"\\" * 900_000,
    ],
    ids=["open string", "commas in a string", "escaped quotes", "backslashes"],
)
def test_values_are_counted_in_one_way_through_the_text(text: bytes) -> None:
    began = time.process_time()
    with contextlib.suppress(JsonFault):
        parse(text, 10)
    assert time.process_time() - began < 5, "it would take hours to go back for each quote"


def test_more_values_than_are_taken_are_refused_and_strings_are_none() -> None:
    assert parse(b'[1, {"a": "[,{", "b": [2]}]', 5) == [1, {"a": "[,{", "b": [2]}]
    with pytest.raises(JsonFault, match="has more than 4 values"):
        parse(b'[1, {"a": "[,{", "b": [2]}]', 4)
