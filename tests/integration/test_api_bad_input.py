"""Whatever is sent to the routes of dead letters: an answer that says what is wrong, never a 5xx."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.support.letter_rows import prepare, store
from tests.support.stack import Stack
from tests.unit.test_api_doors import application

OF_LETTERS = ("/dead-letters", "/groups", "/alerts", "/replays")
HUGE = "9" * 40
TEXTS = (
    "", "a\x00b", "-1", HUGE, "x" * 5_000, "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00",
    "1" * 19 + "@" + "9" * 18, "9999-12-31T23:59:59-14:00~" + "a" * 32,
    "00000000-0000-0000-0000-000000000000",
)  # fmt: skip


@pytest.fixture
def http(stack: Stack) -> httpx.Client:
    prepare(stack.database)
    store(stack.database, 2)
    stack.start_api()
    return stack.http


def calls() -> list[tuple[str, str, dict[str, Any]]]:
    paths = application(docs=True).openapi()["paths"]
    return [
        (method.upper(), path, call)
        for path, methods in paths.items()
        if path.startswith(OF_LETTERS)
        for method, call in methods.items()
    ]


def judged(answer: httpx.Response, what: object) -> None:
    assert answer.status_code < 500, (what, answer.text[:500])
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json", what


def filled(path: str, text: str = "1") -> str:
    return re.sub(r"{\w+}", quote(text, safe=""), path)


def test_no_odd_path_or_parameter_is_a_fault_of_the_server(http: httpx.Client) -> None:
    for method, path, call in calls():
        if "{" in path:
            for text in TEXTS:
                url = filled(path, text)
                judged(http.request(method, url, json={} if method == "POST" else None), (method, url))
        for parameter in call.get("parameters", ()):
            if parameter["in"] == "query":
                for text in TEXTS:
                    url = f"{filled(path)}?{quote(parameter['name'])}={quote(text)}"
                    judged(http.request(method, url), (method, url[:200]))
