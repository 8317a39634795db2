"""What the two clients share: their address, and httpx's answers and errors as values."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import urlsplit

import httpx

from api.client.answers import Answer
from api.client.calls import NoAnswer, Request

# No byte of the request was sent.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
# A request that httpx or the library below refuses to send, whatever the server does.
_LASTING = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)


def options(url: str, api_key: str, verify: ssl.SSLContext | bool) -> dict[str, Any]:
    """Arguments of an httpx client. Its headers hide the key from repr; redirects, which would take it
    elsewhere, are not followed.

    Raises:
        ValueError: the address or the key cannot be; the message quotes neither the key nor a password.
    """
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
        # Each reads what the other does not mind: a port beyond 65535, a space before it all.
        is_one = is_one and parts.port != 0 and httpx.URL(url).scheme == parts.scheme and " " not in url
    except (ValueError, httpx.InvalidURL):
        is_one = False
    if not is_one:
        raise ValueError("the API's address must be like https://host:port, without user and password")
    if parts.query or parts.fragment:
        raise ValueError("the API's address has neither a query nor a fragment")
    if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise ValueError("the API key is empty, or holds what no key does")
    headers = {"Authorization": f"Bearer {api_key}", "User-Agent": f"redrive-client/{_release()}"}
    return {"base_url": url, "headers": headers, "verify": verify, "follow_redirects": False}


def arguments(request: Request, timeout_s: float) -> dict[str, Any]:
    """Of `httpx.Client.stream`."""
    return {
        "method": request.method,
        "url": request.path,
        "params": dict(request.query) or None,
        "content": request.body,
        "headers": dict(request.headers),
        "timeout": timeout_s,
    }


def answered(answer: httpx.Response, body: bytes = b"") -> Answer:
    headers: Mapping[str, str] = {name.lower(): value for name, value in answer.headers.items()}
    return Answer(answer.status_code, headers, body)


def unanswered(error: httpx.TransportError | httpx.DecodingError) -> NoAnswer:
    lasting = isinstance(error, _LASTING) or "CERTIFICATE_VERIFY_FAILED" in str(error)
    return NoAnswer(error, arrived=not isinstance(error, _NOT_SENT), lasting=lasting)


def _release() -> str:
    try:
        return version("redrive")
    except PackageNotFoundError:  # a copy of the package alone
        return "0"
