"""URLs that others name, taken apart strictly: what two readers could understand differently is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass

from outbound.addresses import IPAddress, read_address

MAX_URL = 2_000
_PORTS = {"https": 443, "http": 80}
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(?P<query>\?[^#]*)?(?P<rest>#.*)?"
)
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
# By the WHATWG's URL standard a host whose last label is a number is an IPv4 address: 127.1, 0x7f000001.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class BadUrlError(ValueError):
    """It is no URL to send to. The message quotes nothing of it, since a URL may hold secrets."""


@dataclass(frozen=True)
class Destination:
    """Where a POST goes. `host` is lower case, an IPv6 address without brackets; `target` path and query."""

    scheme: str
    host: str
    port: int
    target: str
    address: IPAddress | None = None

    @property
    def authority(self) -> str:
        """As the `Host` header has it."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _PORTS[self.scheme] else f"{name}:{self.port}"

    @property
    def place(self) -> str:
        """Whose turn it is: destinations of one place share connections' bounds. `host:port`."""
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, url: str) -> Destination:
        """An absolute `http` or `https` URL in ASCII.

        Raises:
            BadUrlError: anything else; also user or password in it, a fragment, numbers for a host that are
                no address as usually spelled.
        """
        if len(url) > MAX_URL:
            raise BadUrlError(f"is longer than {MAX_URL} characters")
        if not url.isascii() or not url.isprintable() or any(c in url for c in ' "<>\\^`{|}'):
            raise BadUrlError("has characters that no URL has: write them as %XX, hosts as xn--…")
        parts = _URL.fullmatch(url)
        if parts is None or (scheme := parts["scheme"].lower()) not in _PORTS:
            raise BadUrlError("must be an absolute URL with https:// or http://")
        if "@" in parts["authority"]:
            raise BadUrlError("must not have a user or password in it")
        if parts["rest"]:
            raise BadUrlError("must not have a fragment (#…): it is never sent")
        authority = _AUTHORITY.fullmatch(parts["authority"])
        if authority is None:
            raise BadUrlError("has no valid host and port")
        port = int(authority["port"] or _PORTS[scheme])
        if not 1 <= port <= 65_535:
            raise BadUrlError("has no valid port")
        host, address = _host(authority["host"].lower())
        return cls(scheme, host, port, (parts["path"] or "/") + (parts["query"] or ""), address)


def _host(text: str) -> tuple[str, IPAddress | None]:
    if text.startswith("["):
        address = read_address(text[1:-1])
        if address is None or address.version != 6:
            raise BadUrlError("has no valid IPv6 address in its brackets")
        return str(address), address
    name = text.removesuffix(".")
    if (found := read_address(name)) is not None:
        return str(found), found
    if not _NAME.fullmatch(name):
        raise BadUrlError("has no valid host name")
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        raise BadUrlError("has a number for a host: write addresses as 192.0.2.1")
    return name, None
