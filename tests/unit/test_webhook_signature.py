"""What a receiver of signed webhooks refuses."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from dev.sink.signature import BadSignatureError, verify

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
