"""The signature of a webhook: tells its receiver that it is ours, and no old one sent again."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

SIGNATURE_HEADER = "Redrive-Signature"
DELIVERY_HEADER = "Redrive-Delivery"


def sign(secrets: Sequence[str], body: bytes, *, at: int) -> str:
    """`t=<unix seconds>` and for each secret `,v1=<hex HMAC-SHA256 over "<t>." and the body>`.

    Two secrets while one replaces the other: the receiver takes either. It refuses a time more than a few
    minutes off, and compares in constant time.
    """
    signed = f"{at}.".encode() + body
    digests = (hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() for secret in secrets)
    return ",".join([f"t={at}", *(f"v1={digest}" for digest in digests)])
