"""One reading of a management API's URL, with the log-in apart from what may be shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self
from urllib.parse import unquote, urlsplit

from topology.errors import TopologyError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class InvalidManagementUrlError(TopologyError, ValueError):
    """No URL of a management API.

    The message quotes nothing of it: a password with a reserved character makes any part a piece of it.
    """


@dataclass(frozen=True)
class ManagementUrl:
    """`address`: scheme, host, port and a path prefix, for requests and for messages."""

    address: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL. guest:guest where it names no user; what a browser has after the prefix is dropped.

        Raises:
            InvalidManagementUrlError: the scheme, the host or the port is not understood.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise InvalidManagementUrlError(
                "the management URL's port is no number up to 65535; in a password / ? # @ are written "
                "%2F %3F %23 %40"
            ) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidManagementUrlError(
                "the management URL must look like http://user:password@host:15672"
            )
        prefix = f"{parts.path}/".partition("/api/")[0].rstrip("/")
        host = parts.netloc.rpartition("@")[2]
        return cls(
            address=f"{parts.scheme}://{host}{prefix}",
            host=parts.hostname,
            port=port or (443 if parts.scheme == "https" else 80),
            user=unquote(parts.username or "guest"),
            password=unquote(parts.password or "guest"),
        )
