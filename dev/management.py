"""The management API over HTTP. httpx quotes a request's URL in its errors: the log-in stays out of it."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import httpx

LOOPBACK = "127.0.0.1"


def management_client(url: str, *, timeout_s: float) -> httpx.Client:
    """A client for `url`, which may hold user and password. The caller closes it."""
    parts = urlsplit(url)
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    # A proxy meant for the world outside must not be asked for loopback.
    trust_env = parts.hostname != LOOPBACK
    return httpx.Client(base_url=without_login(url), auth=auth, timeout=timeout_s, trust_env=trust_env)


def without_login(url: str) -> str:
    """The address alone, for messages."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
