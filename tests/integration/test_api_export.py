"""`GET /dead-letters/export` over real processes."""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx
import pytest

from tests.support.dlq_here import dlq_here
from tests.support.letter_rows import prepare, store, store_as, store_large
from tests.support.memory import peak_bytes
from tests.support.processes import Process
from tests.support.stack import Stack
from tests.support.waiting import eventually
from topology.wire import properties

MIB = 1024 * 1024


@pytest.fixture
def api(stack: Stack) -> tuple[Stack, Process]:
    prepare(stack.database)
    return stack, stack.start_api()


def headers_of(stack: Stack, name: str) -> dict[str, str]:
    """Of another caller."""
    made = stack.command("api.keys_cli:main", "create", name)
    return {"Authorization": f"Bearer {made.stdout.strip()}"}


def exporting(stack: Stack, headers: dict[str, str]) -> Any:
    return stack.http.stream("GET", "/dead-letters/export", timeout=60, headers=headers)


def test_it_is_what_the_command_writes(api: tuple[Stack, Process]) -> None:
    stack, _ = api
    store(stack.database, 3, task="a")
    store(stack.database, 2, task="b")
    store_as(stack.database, properties(headers={"h": "a\x00b"}).encode(), bytes(range(256)) * 8192)
    for arguments, query in (((), {}), (("--task", "b"), {"task": "b"})):
        told = dlq_here(stack.settings, stack.processes.directory, "export", *arguments)
        answer = stack.http.get("/dead-letters/export", params=query, timeout=60).raise_for_status()
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert answer.content == told.stdout_bytes
    assert stack.http.get("/dead-letters/export", params={"task": "none"}).content == b""


def test_it_holds_little_and_what_breaks_off_can_be_told(api: tuple[Stack, Process]) -> None:
    stack, process = api
    store_large(stack.database, 100)
    one, two = headers_of(stack, "one"), headers_of(stack, "two")
    with exporting(stack, one) as first:
        chunks = first.iter_raw()
        next(chunks)
        assert refusal(stack, one) == (429, "urn:redrive:problem:too-many-open", "5")
        with exporting(stack, two) as second:
            assert refusal(stack, {}) == (503, "urn:redrive:problem:too-many-exports", "30")
            length = sum(len(chunk) for chunk in second.iter_raw())
        assert length > 100 * MIB
        assert peak_bytes(process.pid) < 200 * MIB
        stack.database.cut_connections()
        with pytest.raises(httpx.RemoteProtocolError):
            for _ in chunks:
                pass
    for headers in (one, two):
        again = partial(stack.http.get, "/dead-letters/export?task=none", headers=headers)
        eventually(lambda: again().status_code == 200, 20, "a turn")  # noqa: B023 - called at once


def refusal(stack: Stack, headers: dict[str, str]) -> tuple[int, str, str]:
    answer = stack.http.get("/dead-letters/export", headers=headers)
    return answer.status_code, answer.json()["type"], answer.headers["retry-after"]


def test_it_breaks_off_when_its_key_is_revoked(api: tuple[Stack, Process]) -> None:
    stack, _ = api
    store_large(stack.database, 100)
    headers = headers_of(stack, "leaver")
    with exporting(stack, headers) as answer:
        chunks = answer.iter_raw()
        next(chunks)
        assert stack.command("api.keys_cli:main", "revoke", "leaver").returncode == 0
        refused = lambda: stack.http.get("/groups", headers=headers).status_code == 401  # noqa: E731
        eventually(refused, 20, "the key opens nothing any more")
        with pytest.raises(httpx.RemoteProtocolError):
            for _ in chunks:
                pass
