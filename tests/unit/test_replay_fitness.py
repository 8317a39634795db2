"""What a letter tells by itself about whether sending it again is in vain."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from topology.messages import task_message
from topology.republish import why_in_vain
from topology.wire import properties, split

NOW = datetime(2026, 5, 1, tzinfo=UTC)
LARGEST = 10_000


def old_style(**values: Any) -> bytes:
    """The body of a task in Celery's protocol 1."""
    return json.dumps({"task": "t", "id": "i", "args": [], "kwargs": {}, "retries": 0} | values).encode()


JSON = properties(content_type="application/json").encode()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (old_style(expires="2026-04-30T00:00:00+00:00"), "expired at 2026-04-30"),
        (old_style(expires="2026-05-02T00:00:00+00:00"), None),
        (old_style(expires=None), None),
        (old_style(), None),
        (b"\xff", None),
    ],
)
def test_an_expiry_in_the_body_is_not_taken_away(body: bytes, words: str | None) -> None:
    why = why_in_vain(JSON, body, largest=LARGEST, now=NOW)
    assert (why is None) if words is None else (words in str(why))


def test_an_expiry_in_the_headers_is_taken_away() -> None:
    message = task_message("i", "t", {})
    headers = split(message.properties).with_header("expires", "2026-04-30T00:00:00+00:00")
    assert why_in_vain(headers.encode(), message.body, largest=LARGEST, now=NOW) is None


def test_properties_have_to_fit_a_frame_once_the_broker_s_headers_are_gone() -> None:
    deaths = [{"queue": "q" * 200, "reason": "rejected"}] * 60
    assert (
        why_in_vain(properties(headers={"x-death": deaths}).encode(), b"", largest=LARGEST, now=NOW) is None
    )
    why = why_in_vain(properties(headers={"h": "v" * LARGEST}).encode(), b"", largest=LARGEST, now=NOW)
    assert "one frame (10000 bytes)" in str(why)
    assert "cannot be changed" in str(why_in_vain(b"\xff\xff", b"", largest=LARGEST, now=NOW))
