"""The receiver's half of a signed webhook: what anyone who takes Redrive's alerts does with them."""

from __future__ import annotations

import hashlib
import hmac
import re

HEADER = "Redrive-Signature"
DELIVERY = "Redrive-Delivery"
TOLERANCE_S = 300
_FORM = re.compile(r"t=([0-9]{1,12})((?:,v1=[0-9a-f]{64})+)")


class BadSignatureError(Exception):
    """The request is not from who it says, or old; the message says which check failed."""


def verify(header: str | None, body: bytes, secret: str, now: float) -> None:
    """Checks `t=<unix seconds>,v1=<hex HMAC-SHA256 over "<t>." and the body>`; of several `v1` one is enough.

    Raises:
        BadSignatureError: missing, malformed, more than 5 minutes off (a replayed delivery), or wrong.
    """
    if header is None:
        raise BadSignatureError(f"{HEADER} is missing")
    parts = _FORM.fullmatch(header)
    if parts is None:
        raise BadSignatureError(f"{HEADER} is not of the form t=…,v1=…")
    if abs(now - int(parts[1])) > TOLERANCE_S:
        raise BadSignatureError(f"signed {now - int(parts[1]):.0f} s ago; {TOLERANCE_S} s are allowed")
    right = hmac.new(secret.encode(), f"{parts[1]}.".encode() + body, hashlib.sha256).hexdigest()
    if not any(hmac.compare_digest(right, each) for each in parts[2].split(",v1=")[1:]):
        raise BadSignatureError("the signature is not this body's under our secret")
