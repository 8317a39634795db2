"""One reading of an AMQP URL: pika and kombu disagree about `amqp://host//` and about a missing vhost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from topology.errors import TopologyError

if TYPE_CHECKING:
    import pika

CONNECT_TIMEOUT_S = 5.0
HEARTBEAT_S = 30


class InvalidAddressError(TopologyError, ValueError):
    """Not an AMQP URL that leaves no doubt about its parts.

    The message quotes nothing of it: a password with a reserved character makes any part a piece of it.
    """


@dataclass(frozen=True)
class AmqpAddress:
    """Where a broker is.

    `amqp://host` and `amqp://host/` are the vhost "/", as kombu has it; `amqp://host/%2F` says so
    plainly; `amqp://host//` is refused, since kombu reads "/" there and pika the empty vhost.
    """

    host: str
    port: int
    user: str
    password: str
    vhost: str
    tls: bool
    heartbeat_s: int = HEARTBEAT_S

    @classmethod
    def parse(cls, url: str) -> AmqpAddress:
        """Read a URL.

        Raises:
            InvalidAddressError: the scheme, the port, the vhost or an option is not understood.
        """
        try:
            parts = urlsplit(url)
        except ValueError:
            raise InvalidAddressError("the URL's host is not understood") from None
        if parts.scheme not in ("amqp", "amqps"):
            raise InvalidAddressError("the URL's scheme must be amqp or amqps")
        if "/" in parts.path[1:]:
            raise InvalidAddressError(
                "the vhost holds a slash; write it as %2F (amqp://host/%2F is the vhost /)"
            )
        options = dict(parse_qsl(parts.query))
        if unknown := options.keys() - {"heartbeat"}:
            raise InvalidAddressError(
                f"{len(unknown)} option(s) not understood; only heartbeat is, and a ? in a password is %3F"
            )
        if parts.fragment:
            raise InvalidAddressError("the URL holds a #; in a password it is written %23")
        tls = parts.scheme == "amqps"
        try:
            port = parts.port or (5671 if tls else 5672)
        except ValueError:
            raise InvalidAddressError(
                "the URL's port is no number up to 65535; in a password / # ? are written %2F %23 %3F"
            ) from None
        try:
            heartbeat = int(options.get("heartbeat", HEARTBEAT_S))
        except ValueError:
            raise InvalidAddressError("the URL's heartbeat is no whole number of seconds") from None
        return cls(
            host=parts.hostname or "localhost",
            port=port,
            user=unquote(parts.username or "guest"),
            password=unquote(parts.password or "guest"),
            vhost=unquote(parts.path[1:]) or "/",
            tls=tls,
            heartbeat_s=heartbeat,
        )

    def __str__(self) -> str:
        """For messages: without user and password."""
        return f"{self.host}:{self.port} vhost {self.vhost}"

    def __repr__(self) -> str:
        return f"AmqpAddress({self})"

    def kombu_url(self) -> str:
        """The same address as kombu reads it."""
        scheme = "amqps" if self.tls else "amqp"
        user, password = quote(self.user, safe=""), quote(self.password, safe="")
        return f"{scheme}://{user}:{password}@{self.host}:{self.port}/{quote(self.vhost, safe='')}"

    def pika_parameters(self, name: str) -> pika.ConnectionParameters:
        """Parameters for one connection, shown as `name` in the management UI."""
        import pika  # for those who connect: an address is a part of every process's settings

        options = {}
        if self.tls:
            import ssl

            options["ssl_options"] = pika.SSLOptions(ssl.create_default_context(), self.host)
        return pika.ConnectionParameters(
            host=self.host,
            port=self.port,
            virtual_host=self.vhost,
            credentials=pika.PlainCredentials(self.user, self.password),
            heartbeat=self.heartbeat_s,
            socket_timeout=CONNECT_TIMEOUT_S,
            stack_timeout=2 * CONNECT_TIMEOUT_S,
            client_properties={"connection_name": name},
            **options,
        )
