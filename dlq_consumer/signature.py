"""The signature of a webhook: tells its receiver that it is ours, and no old one sent again."""

from __future__ import annotations

import hashlib
import hmac

SIGNATURE_HEADER = "Redrive-Signature"
DELIVERY_HEADER = "Redrive-Delivery"


def sign(secret: str, body: bytes, *, at: int) -> str:
    """`t=<unix seconds>,v1=<hex HMAC-SHA256 over "<t>." and the body>`.

    The receiver refuses a time more than a few minutes off, and compares in constant time.
    """
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"
