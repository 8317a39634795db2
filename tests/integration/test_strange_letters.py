"""Whatever a letter holds, every surface shows it: the command for people, its JSON, and HTTP."""

from __future__ import annotations

import json
import pickle
import struct
import zlib
from collections.abc import Iterator

import pytest
from click.testing import Result

from tests.support.dlq_here import dlq_here
from tests.support.letter_rows import prepare, store_as
from tests.support.shared import Places
from tests.support.stack import Stack
from topology.wire import HeaderEntry, Properties, properties


def table(*entries: tuple[bytes, bytes]) -> bytes:
    return Properties(headers=tuple(HeaderEntry(*entry) for entry in entries)).encode()


NOTHING = properties().encode()
DEEP = b"S\x00\x00\x00\x01x"
for _ in range(5_000):
    DEEP = b"A" + struct.pack(">I", len(DEEP)) + DEEP
# Name: properties, body, and what the command shows of it.
LETTERS: dict[str, tuple[bytes, bytes, list[str]]] = {
    "NUL": (NOTHING, b'"a\\u0000b"', ["body (json, 10 bytes)", "a\\u0000b"]),
    "raw NUL": (NOTHING, b"a\x00b", ["body (text, 3 bytes)", "a\\x00b"]),
    "surrogates": (NOTHING, b'{"\\ud800": "\\udfff"}', ["\\\\ud800", "\\\\udfff"]),
    "NaN": (NOTHING, b"[NaN, -Infinity]", ['"$float": "NaN"']),
    "1e400": (NOTHING, b"1e400", ['"$float": "Infinity"']),
    "a huge integer": (NOTHING, b"9" * 10_000, ["body (text, 10000 bytes)"]),
    "deep JSON": (NOTHING, b"[" * 100_000 + b"]" * 100_000, ["body (text, 200000 bytes)"]),
    "no UTF-8": (NOTHING, b"\xff\xfe\x00A", ["body (hex, 4 bytes)", "00000000  ff fe 00 41", "...A"]),
    "a pickle": (NOTHING, pickle.dumps([1, 2]), ["body (hex, pickle, "]),
    "compressed": (
        properties(headers={"compression": "application/x-gzip"}).encode(),
        zlib.compress(b"{}" * 2_000),
        ["compressed (zlib)", "compression (string):"],
    ),
    "long bytes": (NOTHING, b"\xfe" * 300_000, ["cut", "298976 bytes more"]),
    "a far timestamp": (
        table((b"t", b"T" + struct.pack(">Q", 292 * 10**9 * 31_556_952))),
        b"",
        ["t (timestamp): ", str(292 * 10**9 * 31_556_952)],
    ),
    "header names": (
        table(
            (b"\xff", b"V"), (b"a", b"t\x01"), (b"a", b"l" + b"\xff" * 8), (b"$x", b"S\x00\x00\x00\x01\xff")
        ),
        b"",
        ["\\xff (void): null", "a (bool): true", "a (int64): -1", '$x (string): {"$bytes": "/w=="'],
    ),
    "NaN header": (
        table((b"d", b"d" + struct.pack(">d", float("nan")))), b"", ['d (double): {"$float": "NaN"}']
    ),
    "deep headers": (table((b"d", DEEP)), b"", ["d (array): "]),
    "an unknown type": (table((b"z", b"Zabc")), b"", ["z (unknown): "]),
    "cut properties": (b"\x20\x00\x00\x00\xff\xff", b"x", ["$malformed"]),
    "escapes": (table((b"\x1b]0;x\x07", b"V")), b"\x1b[31mred", ["\\x1b]0;x\\x07 (void)", "\\x1b[31mred"]),
}  # fmt: skip


def here(stack: Stack, *arguments: str) -> Result:
    return dlq_here(stack.settings, stack.processes.directory, *arguments)


@pytest.fixture(scope="module")
def strange(places: Places) -> Iterator[Stack]:
    with places.fresh() as (vhost, database, processes):
        prepare(database)
        for raw, body, _ in LETTERS.values():
            store_as(database, raw, body)
        stack = Stack(vhost, database, processes)
        stack.start_api()
        yield stack
        stack.close()


def test_http_shows_each_letter_and_the_list(strange: Stack) -> None:
    for id_, name in enumerate(LETTERS, start=1):
        answer = strange.http.get(f"/dead-letters/{id_}")
        assert (name, answer.status_code) == (name, 200)
        assert answer.json()["body_size"] == len(LETTERS[name][1])
    assert len(strange.http.get("/dead-letters").raise_for_status().json()["letters"]) == len(LETTERS)


def test_the_command_shows_each_letter_to_people_and_as_json(strange: Stack) -> None:
    for id_, (name, (_, _, said)) in enumerate(LETTERS.items(), start=1):
        done = here(strange, "show", str(id_))
        assert (name, done.exit_code, done.stderr) == (name, 0, "")
        assert [words for words in said if words not in done.stdout] == [], (name, done.stdout[:2_000])
        assert [c for c in done.stdout if not c.isprintable() and c != "\n"] == []
    strict = here(strange, "show", "7", "--json")
    assert json.loads(strict.stdout)["header_types"] == []
    listed = here(strange, "list", "--json")
    assert len([json.loads(line) for line in listed.stdout.splitlines()]) == len(LETTERS)


def test_the_json_of_the_command_and_of_http_are_one(strange: Stack) -> None:
    names = [*LETTERS].index("header names") + 1
    shown = strange.http.get(f"/dead-letters/{names}").json()
    assert json.loads(here(strange, "show", str(names), "--json").stdout) == shown
    types = [["\\xff", "void"], ["a", "bool"], ["a", "int64"], ["$x", "string"]]
    assert shown["header_types"] == types
