"""asyncpg's connection, with what it lacks where the other side stops answering."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import asyncpg

# For a server that vanishes: who waits for a notification, or for a task's statement, would wait for ever.
# What `storage.silence` asks of Postgres, from this side; not every system has all of them.
_SOCKET = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 30),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 10),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 60_000),
)


class Connection(asyncpg.Connection):
    """Its loss is told to whoever uses it as what it is, also when it is this side that drops it."""

    def terminate(self) -> None:
        """As asyncpg's, which leaves None behind: a statement that was between its two steps would end with
        an AttributeError."""
        held = cast(Any, self)
        protocol = held._protocol
        super().terminate()
        held._protocol = protocol


async def connect(*arguments: Any, **options: Any) -> Connection:
    """`asyncpg.connect`, and the connection is lost once its server has been silent for a minute."""
    connection = await asyncpg.connect(*arguments, **{"connection_class": Connection} | options)
    # The driver shows its socket in no other way.
    transport: asyncio.Transport = cast(Any, connection)._transport
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        for level, name, value in _SOCKET:
            if (option := getattr(socket, name, None)) is not None:
                sock.setsockopt(level, option, value)
    return cast(Connection, connection)
