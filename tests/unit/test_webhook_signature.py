"""What a receiver of signed webhooks refuses."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from dev.sink.signature import BadSignatureError, verify
from outbound.signature import DELIVERY_HEADER, SIGNATURE_HEADER, sign

NOW = 1_800_000_000
BODY = b'{"kind":"first_seen"}'


def signed(body: bytes = BODY, secret: str = "s3cret", at: int = NOW) -> str:
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


@pytest.mark.parametrize("off", [0, 299, -299])
def test_a_right_and_recent_signature_passes(off: int) -> None:
    verify(signed(at=NOW + off), BODY, "s3cret", NOW)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (None, "missing"),
        ("", "form"),
        ("v1=00", "form"),
        (signed() + ",v0=1", "form"),
        (signed(secret="other"), "not this body's"),
        (signed(body=b"{}"), "not this body's"),
        (signed().replace(f"t={NOW}", f"t={NOW + 1}"), "not this body's"),
        (signed(at=NOW - 301), "signed 301 s ago"),
        (signed(at=NOW + 301), "signed -301 s ago"),
    ],
)
def test_anything_else_is_refused(header: str | None, why: str) -> None:
    with pytest.raises(BadSignatureError, match=why):
        verify(header, BODY, "s3cret", NOW)


def documented() -> Callable[..., bool]:
    """The receiver that docs/dead-letters.md shows."""
    text = (Path(__file__).parents[2] / "docs" / "dead-letters.md").read_text(encoding="utf-8")
    found = re.search(r"^    import hashlib.*?(?=^\S)", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(dedent(found[0]), names)
    take: Callable[..., bool] = names["take"]
    return take


def test_the_documented_receiver_takes_an_alert_once_whatever_its_unsigned_headers_say() -> None:
    take, seen = documented(), set[str]()
    body, now = b'{"id": "a1", "kind": "first_seen"}', int(time.time())

    def headers(delivery: str, *secrets: str, at: int = now) -> dict[str, str]:
        return {SIGNATURE_HEADER: sign(secrets, body, at=at), DELIVERY_HEADER: delivery}

    assert take(headers("a1", "new", "old"), body, "old", seen)
    for delivery in ("a1", "another"):
        assert not take(headers(delivery, "old"), body, "old", seen)
    odd = headers("a1", "old") | {SIGNATURE_HEADER: f"t={now},v1=\u00e9"}
    for wrong in (headers("a2", "other"), headers("a2", "old", at=now - 400), odd):
        with pytest.raises(PermissionError):
            take(wrong, body, "old", set())
